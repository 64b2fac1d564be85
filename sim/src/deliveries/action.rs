//! What can be asked about events, hooks and deliveries, and what it may come to.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::event::hook::{EventHookSpec, HookUpdate};
use reveille_core::{Millis, StreamPath, Tenant};

use super::engine::{DeliveryOutcome, IngestEvents, StartFrom, TrimPlan};
use crate::base::engine::Timer;

#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Makes a stream that takes no events.
    CreateTextStream {
        tenant: Tenant,
        path: StreamPath,
    },
    Ingest(Box<IngestEvents>),
    CreateHook {
        tenant: Tenant,
        name: Arc<str>,
        spec: EventHookSpec,
        start: StartFrom,
    },
    ChangeHook {
        tenant: Tenant,
        name: Arc<str>,
        change: HookChange,
    },
    Retry {
        tenant: Tenant,
        id: DeliveryId,
    },
    Forget {
        hook: HookId,
        cutoff: Millis,
    },
    Trim {
        tenant: Tenant,
        plan: TrimPlan,
    },
    /// Removes entries that are of no use any more.
    Sweep {
        found: Vec<Bytes>,
    },
    RecordOutcome(DeliveryOutcome),
    /// An attempt was not made, because its hook is not active.
    Hold {
        id: DeliveryId,
        attempt: u32,
    },
    Timer(Timer),
}

/// What is to become of a hook.
#[derive(Debug, Clone)]
pub(super) enum HookChange {
    Update(HookUpdate),
    Activate(bool),
    Pause(bool),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryAnswer {
    Ingested { received: u64, repeated: bool },
    Hooked,
    Unhooked,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryError {
    Unavailable,
    HookExists,
    NoEvent,
    NotFound,
    /// The stream is none for events.
    Rejected,
    /// Nothing that the model ever expects.
    Other(String),
}

pub(super) type DeliveryResult = Result<DeliveryAnswer, DeliveryError>;
