//! A socket whose client must take what it is sent, and whose version of HTTP is told by its first
//! bytes.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use reveille_engine::ReplyRoom;
use reveille_engine::doors::{Clock, Sleep};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::first_bytes::PrefaceTimeout;

/// What a client of HTTP/2 says first.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// While others of the same tenant wait for room, a client that takes nothing is let go after this
/// time already.
pub(crate) const PRESSED_MS: u64 = 5_000;
/// Between two looks at whether somebody waits.
pub(crate) const LOOK_MS: u64 = 1_000;

/// A socket that gives up if its client takes nothing for too long.
pub(crate) struct WriteTimeout {
    socket: PrefaceTimeout,
    /// What was read already and is to be read again.
    unread: Bytes,
    clock: Arc<dyn Clock>,
    timeout_ms: u64,
    /// There while the client does not take what there is for it.
    stall: Option<Stall>,
    shared: Arc<SocketState>,
}

/// A client that does not take what there is for it.
struct Stall {
    /// When it is let go.
    deadline: Sleep,
    /// When it is let go if others wait for the room that it takes.
    look: Sleep,
}

/// What a connection and its requests know of their socket.
#[derive(Default)]
pub(crate) struct SocketState {
    is_flushed: AtomicBool,
    room: Mutex<Option<ReplyRoom>>,
}

impl SocketState {
    /// Whether everything was handed to the operating system when the writer last asked for that.
    pub(crate) fn is_flushed(&self) -> bool {
        self.is_flushed.load(Ordering::Acquire)
    }

    /// Says where what waits for the client is counted.
    pub(crate) fn set_room(&self, room: Option<&ReplyRoom>) {
        *self.room.lock().unwrap_or_else(PoisonError::into_inner) = room.cloned();
    }

    fn is_room_short(&self) -> bool {
        let room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        room.as_ref().is_some_and(ReplyRoom::is_short)
    }
}

impl WriteTimeout {
    pub(crate) fn new(socket: TcpStream, clock: &Arc<dyn Clock>, timeout_ms: u64) -> WriteTimeout {
        WriteTimeout {
            socket: PrefaceTimeout::new(socket, clock.as_ref()),
            unread: Bytes::new(),
            clock: clock.clone(),
            timeout_ms,
            stall: None,
            shared: Arc::default(),
        }
    }

    /// Reads as much as tells the versions of HTTP apart; it is read again by whoever speaks it.
    pub(crate) async fn is_http2(&mut self) -> io::Result<bool> {
        let mut first = [0; PREFACE.len()];
        let mut len = 0;
        while PREFACE.starts_with(first.get(..len).unwrap_or_default()) && len < PREFACE.len() {
            match self.read(first.get_mut(len..).unwrap_or_default()).await? {
                0 => break,
                more => len += more,
            }
        }
        self.read_again(first.get(..len).unwrap_or_default());
        Ok(first == *PREFACE)
    }

    /// Has these bytes read before all others.
    pub(crate) fn read_again(&mut self, bytes: &[u8]) {
        // A copy: they may be the end of a large buffer.
        self.unread = Bytes::copy_from_slice(bytes);
    }

    pub(crate) fn state(&self) -> Arc<SocketState> {
        self.shared.clone()
    }

    /// Ends when the client has hung up. It does not while the client has sent something that
    /// nobody has read.
    pub(crate) fn hung_up(&self) -> impl Future<Output = ()> + Send + use<'_> {
        let stream = self.socket.stream();
        async move {
            let mut byte = [0];
            let peeked = poll_fn(|context| stream.poll_peek(context, &mut ReadBuf::new(&mut byte)));
            if peeked.await.is_ok_and(|len| len > 0) {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What became of a write; too late if nothing was taken for as long as a client has.
    fn written(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        self.shared.is_flushed.store(false, Ordering::Release);
        if polled.is_ready() {
            self.stall = None;
            return polled;
        }
        let (clock, timeout_ms) = (&self.clock, self.timeout_ms);
        let stall = self.stall.get_or_insert_with(|| Stall {
            deadline: clock.sleep_until(clock.now() + timeout_ms),
            look: clock.sleep_until(clock.now() + PRESSED_MS),
        });
        let mut is_over = stall.deadline.as_mut().poll(context).is_ready();
        while !is_over && stall.look.as_mut().poll(context).is_ready() {
            is_over = self.shared.is_room_short();
            stall.look = clock.sleep_until(clock.now() + LOOK_MS);
        }
        if !is_over {
            return Poll::Pending;
        }
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client took nothing")))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.socket).poll_read(context, buffer);
        }
        let len = self.unread.len().min(buffer.remaining());
        buffer.put_slice(self.unread.get(..len).unwrap_or_default());
        self.unread.advance(len);
        if self.unread.is_empty() {
            self.unread = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.is_flushed.store(true, Ordering::Release);
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
