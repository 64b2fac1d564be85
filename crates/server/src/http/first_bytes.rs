//! A socket on which something must come soon.
//!
//! The time-out on headers begins with the first request; before that, the protocol is told by the
//! first bytes, and a client that sends none would keep its place for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use reveille_engine::doors::{Clock, Sleep};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// As long as a client has for its headers.
const WITHIN_MS: u64 = 15_000;
/// The length of what tells HTTP/2 from HTTP/1, which is shorter than any request.
const PREFACE_BYTES: usize = 24;

/// A socket that gives up if its first bytes do not come.
pub(crate) struct PrefaceTimeout {
    socket: TcpStream,
    seen: usize,
    deadline: Option<Sleep>,
}

impl PrefaceTimeout {
    pub(crate) fn new(socket: TcpStream, clock: &dyn Clock) -> PrefaceTimeout {
        let deadline = clock.sleep_until(clock.now() + WITHIN_MS);
        PrefaceTimeout { socket, seen: 0, deadline: Some(deadline) }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.socket
    }
}

impl AsyncRead for PrefaceTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.socket).poll_read(context, buffer);
        let Some(deadline) = &mut self.deadline else { return polled };
        if polled.is_pending() {
            let late = || io::Error::from(io::ErrorKind::TimedOut);
            return deadline.as_mut().poll(context).map(|()| Err(late()));
        }
        self.seen += buffer.filled().len() - before;
        if self.seen >= PREFACE_BYTES {
            self.deadline = None;
        }
        polled
    }
}

impl AsyncWrite for PrefaceTimeout {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}
