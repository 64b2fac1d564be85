//! The body of an answer on its way to the client, as each version of HTTP has it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::connections::BusyConnection;
use super::reply::{BodyError, Chunks, ReplyBody};
use super::stream_timeout::StreamProgress;

/// The longest piece on HTTP/2, where taking a piece is what shows that the client reads.
const STREAM_PIECE_BYTES: usize = 16 << 10;

/// A body that stays open, and what keeps its connection until it has ended.
pub(crate) type LiveBody = (Chunks, BusyConnection);

/// What the client is sent. Until it has ended its connection makes room for nobody.
pub(crate) enum OutboundBody {
    /// As it is: the socket shows whether the client takes it.
    Whole { body: ReplyBody, _busy: BusyConnection },
    /// One that stays open, and goes on without all that a connection needs for requests.
    HandOver(Option<LiveBody>, Arc<HandOver>),
    /// Followed piece by piece.
    Stream { body: ReplyBody, rest: Bytes, progress: Arc<StreamProgress>, _busy: BusyConnection },
}

/// Where a connection finds the body that it is to send by itself.
#[derive(Default)]
pub(crate) struct HandOver {
    live: Mutex<Option<LiveBody>>,
    is_last: AtomicBool,
}

impl HandOver {
    /// Says whether the client wants no further answer on the connection.
    pub(crate) fn set_last(&self, is_last: bool) {
        self.is_last.store(is_last, Ordering::Release);
    }

    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Acquire)
    }

    /// The body, once the head of the answer is on its way.
    pub(crate) fn take(&self) -> Option<LiveBody> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl OutboundBody {
    /// For HTTP/1; one that stays open is handed over if there is somebody to take it.
    pub(crate) fn http1(
        body: ReplyBody,
        busy: BusyConnection,
        hand_over: Option<Arc<HandOver>>,
    ) -> OutboundBody {
        match (body, hand_over) {
            (ReplyBody::Live(chunks), Some(to)) => OutboundBody::HandOver(Some((chunks, busy)), to),
            (body, _) => OutboundBody::Whole { body, _busy: busy },
        }
    }

    /// For HTTP/2.
    pub(crate) fn http2(
        body: ReplyBody,
        busy: BusyConnection,
        progress: Option<Arc<StreamProgress>>,
    ) -> OutboundBody {
        match progress {
            Some(progress) => {
                OutboundBody::Stream { body, rest: Bytes::new(), progress, _busy: busy }
            }
            None => OutboundBody::Whole { body, _busy: busy },
        }
    }
}

impl Body for OutboundBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            OutboundBody::Whole { body, .. } => {
                body.poll_next(context).map(|next| next.map(|next| next.map(Frame::data)))
            }
            OutboundBody::HandOver(live, to) => {
                if let Some(live) = live.take() {
                    let mut place = to.live.lock().unwrap_or_else(PoisonError::into_inner);
                    *place = Some(live);
                }
                // The connection looks for it after this.
                Poll::Pending
            }
            OutboundBody::Stream { body, rest, progress, .. } => {
                if rest.is_empty() {
                    match ready!(body.poll_next(context)) {
                        Some(Ok(bytes)) => *rest = bytes,
                        other => return Poll::Ready(other.map(|next| next.map(Frame::data))),
                    }
                }
                let piece = rest.split_to(rest.len().min(STREAM_PIECE_BYTES));
                if rest.is_empty() {
                    *rest = Bytes::new();
                }
                Poll::Ready(Some(Ok(Frame::data(progress.follow(piece)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            OutboundBody::Whole { body, .. } => body.is_end(),
            OutboundBody::HandOver(..) => false,
            OutboundBody::Stream { body, rest, .. } => rest.is_empty() && body.is_end(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            // Asked for before anything of it is sent.
            OutboundBody::Whole { body, .. } | OutboundBody::Stream { body, .. } => {
                body.size_hint()
            }
            OutboundBody::HandOver(..) => SizeHint::default(),
        }
    }
}
