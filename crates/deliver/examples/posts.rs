//! How many requests one courier sends in a second, to a sink in the same process:
//! `cargo run --release -p reveille-deliver --example posts -- [in flight] [seconds]`

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use reveille_deliver::client::HttpCourier;
use reveille_deliver::courier::{Courier, EarlyAnswer, Request};
use reveille_deliver::destination::{Destination, Rules};
use reveille_deliver::resolve::{NameResolver, NameServers};
use tokio::net::TcpListener;

/// A webhook of an ordinary size.
const BODY: &[u8] = &[b'x'; 300];

async fn sink() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let _ = socket.set_nodelay(true);
            let answer = service_fn(async |request: hyper::Request<Incoming>| {
                let _ = request.into_body().collect().await;
                Ok::<_, Infallible>(hyper::Response::new(Empty::<Bytes>::new()))
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), answer);
            tokio::spawn(connection);
        }
    });
    Ok(address)
}

async fn post_until(end: Instant, courier: Arc<HttpCourier>, request: Request) -> u64 {
    let mut posts = 0;
    while Instant::now() < end {
        let answer = courier.post(request.clone()).await.expect("the sink answers");
        assert_eq!(answer.status, 200);
        posts += 1;
    }
    posts
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let in_flight: usize = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let now: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(|| {
        let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
    });
    let rules = Rules { allow_http_loopback: true, private_networks: Vec::new() };
    let url = format!("http://{}/hook", sink().await?);
    let request = Request {
        tenant: "bench".into(),
        destination: Destination::parse(&url, &rules)?,
        headers: vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))],
        body: Bytes::from_static(BODY),
        early: EarlyAnswer::default(),
    };
    let resolver = Arc::new(NameResolver::new(now.clone(), NameServers::System));
    let courier = Arc::new(HttpCourier::new(rules, resolver, now));
    let begin = Instant::now();
    let end = begin + Duration::from_secs(seconds);
    let callers: Vec<_> = (0..in_flight)
        .map(|_| tokio::spawn(post_until(end, courier.clone(), request.clone())))
        .collect();
    let mut posts = 0;
    for caller in callers {
        posts += caller.await?;
    }
    let per_second = posts as f64 / begin.elapsed().as_secs_f64();
    println!("{in_flight} in flight: {per_second:.0} posts/s, {} retries", courier.retries());
    Ok(())
}
