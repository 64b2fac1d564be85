//! The bytes under a connection: TCP or TLS, and how much the other side has said.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// What may come before the head of an answer is complete: informational answers, the head itself,
/// and what was read ahead. Whoever sends more has no answer to give.
pub(crate) const BEFORE_HEAD_BYTES_MAX: usize = 128 * 1024;

/// Above every number of bytes: the head has come.
const HEAD_CAME: usize = usize::MAX / 2;

/// An open socket, and how much it has received.
pub(crate) struct Transport {
    socket: Socket,
    received: ReceivedBytes,
}

enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// How many bytes came from the other side since this was last cleared.
///
/// The HTTP layer owns the stream and does not tell a connection that was closed without a word
/// from one that was closed in the middle of an answer; only the former may be tried again. Nor
/// does it count informational answers, of which an endpoint can send any number.
#[derive(Clone, Default)]
pub(crate) struct ReceivedBytes(Arc<AtomicUsize>);

impl ReceivedBytes {
    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// The head of an answer has come: what follows is a body, which has a limit of its own.
    pub(crate) fn end_head(&self) {
        self.0.store(HEAD_CAME, Ordering::Relaxed);
    }

    /// Adds what came, and refuses what is too much.
    fn add(&self, bytes: usize) -> io::Result<()> {
        let before = self.0.load(Ordering::Relaxed);
        if before >= HEAD_CAME {
            return Ok(());
        }
        self.0.store(before + bytes, Ordering::Relaxed);
        if before + bytes > BEFORE_HEAD_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "too much before an answer"));
        }
        Ok(())
    }
}

impl Transport {
    pub(crate) fn plain(stream: TcpStream) -> Transport {
        Transport { socket: Socket::Plain(stream), received: ReceivedBytes::default() }
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>) -> Transport {
        Transport { socket: Socket::Tls(Box::new(stream)), received: ReceivedBytes::default() }
    }

    pub(crate) fn received_bytes(&self) -> ReceivedBytes {
        self.received.clone()
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = match &mut this.socket {
            Socket::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Socket::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        let came = buffer.filled().len() - before;
        if came > 0
            && let Err(error) = this.received.add(came)
        {
            return Poll::Ready(Err(error));
        }
        polled
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().socket {
            Socket::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Socket::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().socket {
            Socket::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Socket::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.socket {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().socket {
            Socket::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Socket::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
