//! An endpoint that does exactly what a test tells it to, and a courier that may call it.

#![allow(clippy::disallowed_methods, reason = "a test that hangs must fail, on the real clock")]

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use reveille_deliver::client::HttpCourier;
use reveille_deliver::courier::{Answer, Courier, EarlyAnswer, Request, ResponseFuture, SendError};
use reveille_deliver::destination::{Destination, Rules};
use reveille_deliver::resolve::{Resolve, ResolveFuture};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Far more than anything here takes.
const TOO_LONG: Duration = Duration::from_secs(60);

/// The simplest answer that leaves the connection open.
pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

/// A listener on 127.0.0.1 that counts who comes.
pub(crate) struct Sink {
    pub(crate) port: u16,
    accepts: Arc<AtomicUsize>,
}

impl Sink {
    /// Plays `script` on every connection, with the number of the connection, from 1.
    pub(crate) async fn playing<S, F>(script: S) -> Sink
    where
        S: Fn(TcpStream, usize) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepts = Arc::new(AtomicUsize::new(0));
        let counter = accepts.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::spawn(script(socket, number));
            }
        });
        Sink { port, accepts }
    }

    /// Answers every request with these bytes, and closes only when the client does.
    pub(crate) async fn answering(answer: impl Into<Bytes>) -> Sink {
        let answer = answer.into();
        Sink::playing(move |mut socket, _| {
            let answer = answer.clone();
            async move {
                while read_request(&mut socket).await.is_some() {
                    // The client may hang up on an answer that it does not like.
                    let _ = socket.write_all(&answer).await;
                }
            }
        })
        .await
    }

    /// Answers the first request of each connection with these bytes, and closes.
    pub(crate) async fn answering_once(answer: impl Into<Bytes>) -> Sink {
        let answer = answer.into();
        Sink::playing(move |mut socket, _| {
            let answer = answer.clone();
            async move {
                read_request(&mut socket).await;
                let _ = socket.write_all(&answer).await;
            }
        })
        .await
    }

    pub(crate) fn accepts(&self) -> usize {
        self.accepts.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook?a=b", self.port)
    }
}

/// A request as it arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// The next request on a connection, or `None` when the other side is gone.
pub(crate) async fn read_request<S: AsyncRead + Unpin>(socket: &mut S) -> Option<Received> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(socket.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    socket.read_exact(&mut body).await.ok()?;
    Some(Received { head, body })
}

/// Waits until the other side is gone.
pub(crate) async fn wait_for_end(socket: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset is an end too.
    let _ = socket.read_to_end(&mut rest).await;
}

/// Fails a test that hangs.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TOO_LONG, future).await.expect("it takes too long")
}

/// A resolver that answers what its function says, and counts how often it is asked.
pub(crate) struct Scripted<F> {
    answers: F,
    asked: AtomicUsize,
}

impl<F: Fn(&str, usize) -> Vec<SocketAddr>> Scripted<F> {
    pub(crate) fn new(answers: F) -> Arc<Scripted<F>> {
        Arc::new(Scripted { answers, asked: AtomicUsize::new(0) })
    }
}

impl<F: Fn(&str, usize) -> Vec<SocketAddr> + Send + Sync + 'static> Resolve for Scripted<F> {
    fn resolve(&self, _tenant: &Arc<str>, host: &str, _port: u16) -> ResolveFuture {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let found = (self.answers)(host, number);
        Box::pin(std::future::ready(Ok(found)))
    }
}

/// Knows one address for every name.
pub(crate) struct Everything(pub(crate) IpAddr);

impl Resolve for Everything {
    fn resolve(&self, _tenant: &Arc<str>, _host: &str, port: u16) -> ResolveFuture {
        Box::pin(std::future::ready(Ok(vec![SocketAddr::new(self.0, port)])))
    }
}

pub(crate) fn local_rules() -> Rules {
    Rules { allow_http_loopback: true, private_networks: Vec::new() }
}

/// A request to a URL that would be allowed if this machine is.
pub(crate) fn request(url: &str, headers: Headers, body: Bytes) -> Request {
    let destination = Destination::parse(url, &local_rules()).unwrap();
    Request { tenant: "a".into(), destination, headers, body, early: EarlyAnswer::default() }
}

pub(crate) type Headers = Vec<(HeaderName, HeaderValue)>;

/// A courier that may call this machine, and its clock.
pub(crate) struct Caller {
    pub(crate) courier: HttpCourier,
    pub(crate) clock_ms: Arc<AtomicU64>,
}

impl Caller {
    pub(crate) fn new() -> Caller {
        Caller::resolving(local_rules(), Arc::new(Everything([127, 0, 0, 1].into())))
    }

    pub(crate) fn resolving(rules: Rules, resolver: Arc<dyn Resolve>) -> Caller {
        Caller::made(|now| HttpCourier::new(rules, resolver, now))
    }

    pub(crate) fn made(
        make: impl FnOnce(Arc<dyn Fn() -> u64 + Send + Sync>) -> HttpCourier,
    ) -> Caller {
        let clock_ms = Arc::new(AtomicU64::new(1_000_000));
        let clock = clock_ms.clone();
        let courier = make(Arc::new(move || clock.load(Ordering::SeqCst)));
        Caller { courier, clock_ms }
    }

    /// Begins to send a small body to a URL that would be allowed if this machine is.
    pub(crate) fn begin(&self, url: &str) -> ResponseFuture {
        self.courier.post(request(url, Vec::new(), Bytes::from_static(b"hello")))
    }

    pub(crate) async fn post(&self, url: &str) -> Result<Answer, SendError> {
        within(self.begin(url)).await
    }
}

/// Polls a future until something else happens, and asserts that it does not end before.
pub(crate) async fn while_pending<T>(
    pending: &mut Pin<Box<dyn Future<Output = Result<Answer, SendError>> + Send>>,
    event: impl Future<Output = T>,
) -> T {
    tokio::select! {
        biased;
        ended = pending => panic!("it ended: {ended:?}"),
        happened = within(event) => happened,
    }
}
