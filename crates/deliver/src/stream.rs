//! The bytes under a connection: TCP or TLS, and whether the other side has said anything.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// An open socket.
pub(crate) struct Stream {
    kind: Kind,
    heard: Heard,
}

enum Kind {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Whether a byte came from the other side since this was last cleared.
///
/// The HTTP layer owns the stream and does not tell a connection that was closed without a word
/// from one that was closed in the middle of an answer; only the former may be tried again.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<AtomicBool>);

impl Heard {
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(crate) fn anything(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Stream {
    pub(crate) fn plain(stream: TcpStream) -> Stream {
        Stream { kind: Kind::Plain(stream), heard: Heard::default() }
    }

    pub(crate) fn tls(stream: TlsStream<TcpStream>) -> Stream {
        Stream { kind: Kind::Tls(Box::new(stream)), heard: Heard::default() }
    }

    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = match &mut this.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Kind::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        if buffer.filled().len() > before {
            this.heard.0.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Kind::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Kind::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.kind {
            Kind::Plain(stream) => stream.is_write_vectored(),
            Kind::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Kind::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Kind::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
