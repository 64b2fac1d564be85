//! Faces: whoever has events to deliver, and what deliveries ask of them.
//!
//! A face puts events into its source ([`put_event`](super::source::put_event)), has hooks with a
//! spec that it alone reads, and a matcher that says which hooks are for an event; those are told by
//! a [`Spread`](super::spread::Spread). Everything from there on is done here, for all faces alike,
//! under the policy that each hook carries.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::delivery::{AttemptRecord, DropReason, Poison, Policy};
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::Command;
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::DueTimer;
use reveille_kernel::txn::ReadError;
use reveille_schema::record::{DeliveryRecord, EventRecord};
use reveille_store::state::Reader;

use super::ended::EndedBy;
use super::source;
use super::spread::{MatchNote, MatchingHooks, SpreadEvent};
use crate::app::{App, Part, Settings, Shared, Txn};
use crate::engine::Retention;
use crate::records::KeyReader;

/// A source of events, and what only it knows about them.
pub trait DeliveryFace: Send + Sync + 'static {
    /// The number that its hooks carry and the domain that its timers have.
    fn id(&self) -> FaceId;

    /// Registers what it keeps in memory.
    fn register(&self, app: App) -> App {
        app
    }

    /// The hooks that an event from a while ago is still for, after one, oldest first. However little
    /// it may do at once, it always comes further.
    fn next_matching(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        event: SpreadEvent<'_>,
        after: HookId,
    ) -> Result<MatchingHooks, ReadError>;

    /// What it takes long to find out about an event that is being told to hooks in slices: asked for
    /// outside of the lock, and handed to [`DeliveryFace::next_matching`] with the event. What has
    /// changed meanwhile is that one's business.
    fn prepare(
        &self,
        _shared: &Shared,
        _tenant: &Tenant,
        _no: EventNo,
    ) -> Result<Option<PreparedMatch>, Damaged> {
        Ok(None)
    }

    /// Hooks were held against an event, and this is what there is to remember of that. It is a part
    /// of the decision that comes past them.
    fn noted(&self, _txn: &mut Txn<'_>, _notes: &[(HookId, MatchNote)]) -> Result<(), ReadError> {
        Ok(())
    }

    /// Whether a hook is for an event, by what the hook wished when the event came, and why not.
    /// Nobody waits for it: it may read.
    fn explain_match(
        &self,
        reader: &Reader,
        hook: &Hook,
        no: EventNo,
        event: &EventRecord,
    ) -> Result<EventMatch, Damaged>;

    /// The event that has a name, where events have names of their own; else that of a number.
    fn event_named(
        &self,
        _reader: &Reader,
        _tenant: &Tenant,
        name: &str,
    ) -> Result<Option<EventNo>, Damaged> {
        Ok(name.parse().ok().map(EventNo))
    }

    /// What is delivered of an event: its content as it is stored, unless the face has a gate and
    /// knows better; `None` if there is nothing any more.
    fn payload(
        &self,
        reader: &Reader,
        _hook: &Hook,
        event: &EventRecord,
    ) -> Result<Option<Bytes>, Damaged> {
        source::content(reader, event)
    }

    /// Whether it has a gate. What is at hand is then not sent: it is read once the gate is open.
    fn has_gate(&self) -> bool {
        false
    }

    /// Whether an attempt may be made now; asked before each, and before anything is read of what
    /// is to be delivered. An attempt that is a command asks once more in its own step.
    fn gate(
        &self,
        _look: &mut dyn KeyReader,
        _hook: &Arc<Hook>,
        _event: &EventRecord,
        _now: Millis,
    ) -> Result<Gate, ReadError> {
        Ok(Gate::Open)
    }

    /// An attempt was made, and this came of it; the delivery is as it has become. It is a part of
    /// the decision that writes it down.
    fn attempted(
        &self,
        _txn: &mut Txn<'_>,
        _hook: &Hook,
        _delivery: &DeliveryRecord,
        _attempt: &AttemptRecord,
    ) -> Result<(), ReadError> {
        Ok(())
    }

    /// When deliveries are given up because nothing will change. Where that is the server's to say, it
    /// holds for those that were begun under another setting, too.
    fn poison(&self, policy: &Policy, _settings: &Settings) -> Option<Poison> {
        policy.poison
    }

    /// What its gate says now, and which check decides, for whoever asks why.
    fn explain_gate(
        &self,
        _reader: &Reader,
        _hook: &Hook,
        _event: &EventRecord,
        _now: Millis,
    ) -> Result<Option<GateReason>, Damaged> {
        Ok(None)
    }

    /// A hook ends in this decision although its owner has not asked for that: writes down what is
    /// to be remembered of it, and says what it is called and why if it knows better than that. It
    /// may be called before something is read, and then once more.
    fn hook_ended(
        &self,
        _txn: &mut Txn<'_>,
        _hook: &Hook,
        _by: EndedBy,
    ) -> Result<Option<EndReason>, ReadError> {
        Ok(None)
    }

    /// What its gate said last to a hook that has ended by that, for whoever asks why afterwards.
    fn explain_ended(
        &self,
        _reader: &Reader,
        _tenant: &Tenant,
        _hook: &str,
    ) -> Result<Option<GateReason>, Damaged> {
        Ok(None)
    }

    /// How long events of this source are kept.
    fn retain_ms(&self, retention: Retention) -> u64 {
        retention.events_ms
    }

    /// Removes what it keeps of its oldest events beside their records; `false` if they must stay
    /// for now.
    fn forget(
        &self,
        _txn: &mut Txn<'_>,
        _tenant: &Tenant,
        _events: &[(EventNo, EventRecord)],
    ) -> Result<bool, ReadError> {
        Ok(true)
    }

    /// What a timer of its own asks for. It may read. Such timers may stay for another slice, and
    /// others that are due may come before them.
    fn timer(&self, _shared: &Shared, _timer: DueTimer) -> Result<FaceTimer, Damaged> {
        Err(Damaged(format!("{:?} has no timers", self.id())))
    }
}

/// Whether a hook is for an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventMatch {
    Matches,
    /// It is not, in a sentence of the face.
    Differs(String),
    /// What the hook wished then is not known any more.
    Unknown(String),
}

/// Whether an attempt may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    Open,
    /// The event is not owed to the hook any more: the delivery ends without another attempt.
    Closed(DropReason),
    /// The hook is owed nothing any more: the delivery ends, and the hook with it.
    Cancelled(DropReason),
}

/// Why a hook ended, as the audit log says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndReason {
    pub action: &'static str,
    /// In a sentence.
    pub text: &'static str,
}

/// What was found out about an event outside of the lock, in the words of its face.
pub type PreparedMatch = Arc<dyn Any + Send + Sync>;

/// What a gate says, in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateReason {
    pub is_open: bool,
    pub text: String,
}

/// What a timer of a face asks for.
pub type FaceTimer = Arc<dyn TimerCommand>;

/// A command of a timer.
pub trait TimerCommand: Command<App, Answer = (), Rejection = Never> + Debug {}

impl<C: Command<App, Answer = (), Rejection = Never> + Debug> TimerCommand for C {}

/// All faces.
#[derive(Default)]
pub struct DeliveryFaces(Vec<Box<dyn DeliveryFace>>);

impl Part for DeliveryFaces {}

impl DeliveryFaces {
    /// Their numbers, in the order in which they were registered.
    pub fn ids(&self) -> impl Iterator<Item = FaceId> + '_ {
        self.0.iter().map(|face| face.id())
    }

    /// The face of this number.
    pub fn get(&self, id: FaceId) -> Result<&dyn DeliveryFace, Damaged> {
        let face = self.0.iter().find(|face| face.id() == id);
        face.map(|face| &**face).ok_or_else(|| Damaged(format!("nobody knows {id:?}")))
    }
}

impl App {
    /// Registers a face.
    #[must_use]
    pub fn with_face(self, face: impl DeliveryFace) -> App {
        let mut app = face.register(self);
        let DeliveryFaces(faces) = app.part_mut();
        assert!(faces.iter().all(|it| it.id() != face.id()), "{:?} is one face", face.id());
        faces.push(Box::new(face));
        app
    }
}
