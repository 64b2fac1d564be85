//! What is said to a consumer, and by whom: the engine knows when, a face knows how.

use std::sync::Arc;

use reveille_core::consumer::WakeId;
use reveille_core::delivery::hook::{FaceId, Hook};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::policy::Refusal;
use reveille_core::secret::{SealBroken, SealedSecret};
use reveille_core::signature::Ed25519Key;
use reveille_core::stream::StreamId;
use reveille_core::subscription::Subscription;
use reveille_core::trigger::token::TriggerKey;
use reveille_core::{ContentType, Millis, Offset, StreamPath, Tenant};
use reveille_kernel::error::Damaged;
use reveille_kernel::outbound::EncodedRequest;

/// A wake, as it is told to a consumer's endpoint.
#[derive(Clone)]
pub struct WakeNotification {
    pub subscription: Arc<Subscription>,
    /// The stream that the consumer is for, if it is for one.
    pub primary: Option<StreamPath>,
    pub epoch: u64,
    pub wake_id: WakeId,
    /// When it was decided.
    pub woken_at: Millis,
    /// The streams that it follows, or as many of those with work as a notice names.
    pub streams: Vec<NotifiedStream>,
    /// For its callbacks.
    pub token: String,
    pub now: Millis,
    /// What the wall clock shows now: for the signature and whatever else is read as a date.
    pub wall: Millis,
    /// Its subscription's own secret, opened.
    pub secret: Option<String>,
    /// The one before it, while both sign.
    pub previous_secret: Option<String>,
    /// Signs, where subscriptions have no secret of their own.
    pub signing: Ed25519Key,
    /// The trace that this belongs to, as a `traceparent`.
    pub traceparent: Option<String>,
}

/// A stream in a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifiedStream {
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

impl NotifiedStream {
    /// Whether there is work.
    pub fn is_pending(&self) -> bool {
        self.tail > self.acked
    }
}

/// An event, as it is delivered to a hook.
#[derive(Clone)]
pub struct DeliveryNotification {
    pub hook: Arc<Hook>,
    pub id: DeliveryId,
    /// Counted from 1.
    pub attempt: u32,
    /// The event's name.
    pub event: Arc<str>,
    /// What is said.
    pub payload: bytes::Bytes,
    pub now: Millis,
    /// What the wall clock shows now: for the signature.
    pub wall: Millis,
    /// The replay that has made this delivery.
    pub replay: Option<ReplayMark>,
    /// The trace that this belongs to, as a `traceparent`.
    pub traceparent: Option<String>,
}

/// What a delivery knows of the replay that has made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayMark {
    pub id: u64,
    /// Why it was asked for, and when; `None` if nobody had to say, or the replay is forgotten.
    pub reason: Option<Arc<str>>,
    pub at: Option<Millis>,
    /// How often the event has been made again for this hook, from 1.
    pub count: u16,
}

/// Knows the words of the dialects of wakes.
pub trait Encoder: Send + Sync + 'static {
    /// Puts a notice into words.
    fn encode_wake(&self, notification: &WakeNotification) -> EncodedRequest;
    /// Whether the body of a successful answer says that everything is done.
    fn is_done(&self, body: &[u8]) -> bool;
}

/// Signs in the server's name, as everybody can verify by its published keys.
pub trait Signer: Send + Sync + 'static {
    /// The key that signs now. Keys are replaced while a target is remembered: whoever signs asks
    /// for it each time.
    fn current_key(&self) -> Ed25519Key;

    /// The key that signs tokens of triggers now.
    fn trigger_key(&self) -> TriggerKey;
}

/// What targets are found with.
pub struct TargetContext<'a> {
    pub open: OpenSecret<'a>,
    /// To keep, for whatever is signed with the server's own key.
    pub signer: &'a Arc<dyn Signer>,
    /// To keep, for whatever is signed with a secret of the hook's tenant that has a name.
    pub secrets: &'a Arc<dyn SecretSource>,
}

/// Secrets of tenants, by name.
pub trait SecretSource: Send + Sync + 'static {
    /// Those that sign now under a name, the newest first. They are replaced while a target is
    /// remembered: whoever signs asks each time, with the time of the attempt.
    fn signing(
        &self,
        tenant: &Tenant,
        name: &str,
        now: Millis,
    ) -> Result<Vec<String>, SecretUnavailable>;
}

/// Nothing is signed, and so nothing is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretUnavailable {
    #[error("the tenant has no secret of this name")]
    Missing,
    #[error("the secret cannot be opened with this secrets key")]
    Sealed,
}

/// Opens a secret of a hook's tenant. One that does not open is no reason to send unsigned.
pub type OpenSecret<'a> = &'a dyn Fn(&SealedSecret) -> Result<String, SealBroken>;

/// Knows the words of a face's deliveries.
pub trait DeliveryEncoder: Send + Sync + 'static {
    /// Whose hooks it reads.
    fn face(&self) -> FaceId;

    /// Whom a hook is for. It is asked for when a hook is first sent to and when it was changed, so
    /// that the hook's spec is not read for every attempt.
    fn target(
        &self,
        hook: &Hook,
        context: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError>;

    /// The same for a hook whose transport is an append.
    fn append_target(
        &self,
        _hook: &Hook,
        _context: &TargetContext<'_>,
    ) -> Result<Arc<dyn AppendTarget>, TargetError> {
        Err(Damaged(format!("{:?} has no hooks that append", self.face())).into())
    }
}

/// Why there is nobody to send to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A secret that signs does not open. Nothing is sent unsigned.
    #[error("the secret that signs deliveries cannot be opened")]
    Secret,
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// A delivery that its face does not put into words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedDelivery {
    pub why: Refusal,
    /// A sentence for whoever the hook belongs to.
    pub text: String,
}

/// What a hook's deliveries append.
pub trait AppendTarget: Send + Sync {
    /// Puts a delivery into words, or says why not.
    fn encode(&self, notification: &DeliveryNotification)
    -> Result<EncodedAppend, RefusedDelivery>;
}

/// An append to a stream of the hook's tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedAppend {
    pub path: StreamPath,
    /// What the body is, and the stream, if there is none yet.
    pub content_type: ContentType,
    pub body: bytes::Bytes,
}

/// Whom a hook is for.
pub trait DeliveryTarget: Send + Sync {
    /// Where deliveries go.
    fn address(&self) -> String;

    /// Who is called there, by the name that the face has for them, if it has one.
    fn receiver(&self) -> String {
        String::new()
    }

    /// Puts a delivery into words, or says why not. A `user-agent` among the headers is sent in
    /// place of the server's own.
    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedRequest, RefusedDelivery>;
}

/// The encoders of all faces.
#[derive(Clone, Default)]
pub struct DeliveryEncoders(Vec<Arc<dyn DeliveryEncoder>>);

impl DeliveryEncoders {
    /// Registers the encoder of a face.
    #[must_use]
    pub fn with(mut self, encoder: impl DeliveryEncoder) -> DeliveryEncoders {
        let is_new = self.0.iter().all(|it| it.face() != encoder.face());
        assert!(is_new, "{:?} has one encoder", encoder.face());
        self.0.push(Arc::new(encoder));
        self
    }

    /// Whom a hook is for.
    pub fn target(
        &self,
        hook: &Hook,
        context: &TargetContext<'_>,
    ) -> Result<Arc<dyn DeliveryTarget>, TargetError> {
        self.of(hook)?.target(hook, context)
    }

    /// What a hook's deliveries append.
    pub fn append_target(
        &self,
        hook: &Hook,
        context: &TargetContext<'_>,
    ) -> Result<Arc<dyn AppendTarget>, TargetError> {
        self.of(hook)?.append_target(hook, context)
    }

    fn of(&self, hook: &Hook) -> Result<&dyn DeliveryEncoder, Damaged> {
        let encoder = self.0.iter().find(|encoder| encoder.face() == hook.face);
        let unknown = || Damaged(format!("nobody knows the words of {:?}", hook.face));
        encoder.map(|encoder| &**encoder).ok_or_else(unknown)
    }
}
