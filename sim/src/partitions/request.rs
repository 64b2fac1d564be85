//! A request of this world, and what its outcome means.

use std::collections::BTreeSet;
use std::sync::Arc;

use reveille_core::event::hook::EventHookSpec;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::subscription::SubscriptionSpec;
use reveille_core::{StreamPath, Tenant};

use super::Partitions;
use super::engine::{self, DeliveryOutcome, IngestEvents, WakeOutcome};
use crate::base::engine::Timer;
use crate::base::{CheckResult, Origin, Outcome, Request, WorldCall, violation};

#[derive(Debug, Clone)]
pub(super) enum Action {
    Create { path: StreamPath, request: Create },
    Append { path: StreamPath, request: Append, token: String },
    Subscribe(SubscriptionSpec),
    CreateHook { name: Arc<str>, spec: EventHookSpec },
    Ingest(Box<IngestEvents>),
    RecordWake(WakeOutcome),
    RecordDelivery(DeliveryOutcome),
    Timer(Timer),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    Unavailable,
    Rejected(String),
}

#[derive(Debug)]
pub(super) struct TenantRequest {
    tenant: Tenant,
    action: Action,
    /// The attempt that it reports, if it does.
    pub(super) attempt: Option<u64>,
    /// Whoever had subscribed when it was sent follows what it does.
    is_followed: bool,
    /// The hooks that there surely were when it was sent.
    hooks: BTreeSet<Arc<str>>,
}

impl TenantRequest {
    pub(super) fn new(world: &Partitions, tenant: Tenant, action: Action) -> TenantRequest {
        let is_followed = world.subscribed.contains(&tenant);
        let hooks = world.hooks.get(&tenant).cloned().unwrap_or_default();
        TenantRequest { tenant, action, attempt: None, is_followed, hooks }
    }
}

impl Request<Partitions> for TenantRequest {
    fn call(&self) -> WorldCall<Partitions> {
        engine::call(&self.tenant, &self.action)
    }

    fn weight(&self) -> u64 {
        match self.action {
            Action::Ingest(_) => 40_000,
            Action::Timer(_) => 20_000,
            _ => 12_000,
        }
    }

    fn answered(
        self: Box<Self>,
        world: &mut Partitions,
        _origin: Origin,
        outcome: Outcome<Partitions>,
    ) -> CheckResult {
        if let Some(attempt) = self.attempt {
            world.end_attempt(attempt);
        }
        let TenantRequest { tenant, action, is_followed, hooks, .. } = *self;
        match outcome {
            Ok(()) => {}
            Err(Refusal::Unavailable) => return Ok(()),
            Err(Refusal::Rejected(why)) => return check_rejected(&action, &why),
        }
        match action {
            Action::Append { path, token, .. } => {
                let stream = (tenant, path);
                world.appended.entry(stream.clone()).or_default().insert(token);
                if is_followed {
                    world.must_tell.insert(stream);
                }
            }
            Action::Subscribe(_) => {
                world.subscribed.insert(tenant);
            }
            Action::CreateHook { name, .. } => {
                world.hooks.entry(tenant).or_default().insert(name);
            }
            Action::Ingest(ingest) => {
                for event in ingest.events {
                    world.must_deliver.insert((tenant.clone(), event.id), hooks.clone());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// What clients ask for here is mostly allowed.
fn check_rejected(action: &Action, why: &str) -> CheckResult {
    match action {
        // The stream is not there yet, or the subscription is there with other streams.
        Action::Append { .. } | Action::Create { .. } => Ok(()),
        _ => Err(violation(format!("{action:?} was rejected: {why}"))),
    }
}
