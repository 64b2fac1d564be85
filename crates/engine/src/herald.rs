//! What is said to a consumer, and by whom: the engine knows when, a face knows how.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use reveille_core::consumer::WakeId;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::signature::Ed25519Key;
use reveille_core::stream::StreamId;
use reveille_core::subscription::Subscription;
use reveille_core::{Millis, Offset, StreamPath};

/// A wake, as it is told to a consumer's endpoint.
#[derive(Clone)]
pub struct Notice {
    /// Whose endpoint.
    pub subscription: Arc<Subscription>,
    /// The stream that the consumer is for, if it is for one.
    pub primary: Option<StreamPath>,
    /// The wake.
    pub epoch: u64,
    /// Its name.
    pub wake_id: WakeId,
    /// When it was decided.
    pub woken_at: Millis,
    /// The streams that it follows, or as many of those with work as a notice names.
    pub streams: Vec<NoticeStream>,
    /// For its callbacks.
    pub token: String,
    /// The time.
    pub now: Millis,
    /// Signs, where subscriptions have no secret of their own.
    pub signing: Ed25519Key,
    /// The trace that this belongs to, as a `traceparent`.
    pub traceparent: Option<String>,
}

/// A stream in a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeStream {
    /// Where.
    pub path: StreamPath,
    /// Which incarnation is followed; `None` while there is none.
    pub stream: Option<StreamId>,
    /// How far it is processed.
    pub acked: Option<Offset>,
    /// Where it ends; `None` if there is no such stream.
    pub tail: Option<Offset>,
    /// Whether it was named, and not only matched.
    pub explicit: bool,
}

impl NoticeStream {
    /// Whether there is work.
    pub fn is_pending(&self) -> bool {
        self.tail > self.acked
    }
}

/// A request to an endpoint, but for its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Headers.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Body.
    pub body: bytes::Bytes,
}

/// An event, as it is delivered to a hook.
#[derive(Clone)]
pub struct Dispatch {
    /// To whom.
    pub hook: Arc<Hook>,
    /// Which delivery.
    pub id: DeliveryId,
    /// For the how manieth time.
    pub attempt: u32,
    /// The event's name.
    pub event: Arc<str>,
    /// What is said.
    pub words: bytes::Bytes,
    /// The time.
    pub now: Millis,
}

/// Knows the words of the dialects.
pub trait Herald: Send + Sync + 'static {
    /// Where a delivery goes.
    fn address(&self, hook: &Hook) -> String;
    /// Puts a delivery into words.
    fn letter(&self, dispatch: &Dispatch) -> Message;
    /// Puts a notice into words.
    fn message(&self, notice: &Notice) -> Message;
    /// Whether the body of a successful answer says that everything is done.
    fn is_done(&self, body: &[u8]) -> bool;
}
