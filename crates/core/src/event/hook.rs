//! Hooks for typed events: what their owners wish, and which rules follow from that.

use std::sync::Arc;

use super::EventPattern;
use super::worker::{RpcMethod, WorkerId};
use crate::delivery::hook::FaceId;
use crate::delivery::policy::{Backoff, Jitter, Order, Policy};
use crate::secret::SealedSecret;

/// The face of typed events.
pub const FACE: FaceId = FaceId(0x04);

/// Events whose type matches, to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventHookSpec {
    pub pattern: EventPattern,
    pub worker: WorkerId,
    /// By which binding, if there is one of that name.
    pub binding: Option<Arc<str>>,
    /// What is called there.
    pub method: RpcMethod,
    /// How often a delivery is tried in all; none is as good as one.
    pub max_retries: u32,
    /// How long an attempt may take.
    pub timeout_ms: u64,
    /// Signs deliveries.
    pub secret: Option<SealedSecret>,
    /// Whether events are delivered one after another.
    pub ordered: bool,
}

/// What may be changed about a hook.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookUpdate {
    pub max_retries: Option<u32>,
    pub timeout_ms: Option<u64>,
    /// What is called.
    pub method: Option<RpcMethod>,
}

/// What no two hooks of a tenant may have alike.
pub type Identity = (WorkerId, EventPattern, RpcMethod);

impl EventHookSpec {
    /// What tells it from all others of its tenant.
    pub fn identity(&self) -> Identity {
        (self.worker.clone(), self.pattern.clone(), self.method.clone())
    }

    /// The rules that deliveries follow.
    pub fn policy(&self) -> Policy {
        let (base_ms, cap_ms, jitter) = (1_000, 300_000, Jitter::Added { ms: 1_000 });
        let backoff = Backoff { base_ms, cap_ms, jitter };
        Policy {
            order: if self.ordered { Order::Lanes } else { Order::None },
            ..Policy::new(self.timeout_ms, self.max_retries, backoff)
        }
    }

    /// The same with some of it changed.
    #[must_use]
    pub fn edited(&self, edit: &HookUpdate) -> EventHookSpec {
        EventHookSpec {
            max_retries: edit.max_retries.unwrap_or(self.max_retries),
            timeout_ms: edit.timeout_ms.unwrap_or(self.timeout_ms),
            method: edit.method.as_ref().unwrap_or(&self.method).clone(),
            ..self.clone()
        }
    }
}
