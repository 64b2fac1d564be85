//! How a trigger fares, and how far the telling of changes has come.

use std::sync::Arc;

use reveille_core::delivery::hook::DeliveryCounts;
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::{ChangeHead, FACE};
use reveille_core::trigger::rollout::SloWindow;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::record::EventRecord;
use reveille_schema::triggers::{EvaluationErrors, TriggerHealth};
use reveille_schema::{Record, keys, record};

use super::index::{TenantTriggers, TriggerEntry, TriggerIndex};
use super::queries::Trigger;
use crate::deliveries::source;
use crate::engine::Engine;
use crate::metrics::{TriggerMetrics, TriggerTotals};
use crate::records::ReadRecord;

/// How a trigger fares (ADM-6).
#[derive(Debug, Clone)]
pub struct TriggerStatus {
    pub counts: DeliveryCounts,
    pub last_success_at: Option<Millis>,
    pub last_failure_at: Option<Millis>,
    pub last_error: Option<Arc<str>>,
    /// The attempts of the version that is on trial; empty if none is.
    pub window: SloWindow,
    /// Changes of which the condition came to nothing.
    pub evaluation_errors: Option<EvaluationErrors>,
    pub position: TriggerPosition,
}

/// How far the triggers of a tenant have come in its changes (CHK). Matching is a part of the write:
/// what lags is the telling of changes that are for many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TriggerPosition {
    /// The tenant's last change; 0 before the first.
    pub head: u64,
    /// Every trigger was held against all changes up to this one.
    pub told: u64,
    /// When the last change came that not everybody was told of; `None` if there is none.
    pub waiting_since: Option<Millis>,
}

/// What is counted of a trigger, or of all those of a tenant that are not counted by themselves.
#[derive(Debug, Clone)]
pub struct TriggerGauge {
    pub tenant: Tenant,
    /// `None` for the others of the tenant.
    pub id: Option<Arc<str>>,
    pub totals: TriggerTotals,
    /// Changes that became deliveries, ever.
    pub matched: u64,
    /// Changes of which the condition was false, since the start.
    pub missed: u64,
    /// Dead letters, now.
    pub dead_letters: u64,
}

/// The number of a change among those of its tenant, which is the id of its event.
pub(super) fn change_seq(event: &EventRecord) -> Result<u64, Damaged> {
    event.id.parse().map_err(|_| Damaged(format!("a change has the id {:?}", event.id)))
}

impl TriggerGauge {
    fn add(&mut self, entry: &TriggerEntry, totals: &TriggerTotals, counts: &DeliveryCounts) {
        self.totals.add(totals);
        self.missed += entry.missed();
        self.matched += counts.begun;
        self.dead_letters += counts.dead_letters;
    }
}

impl Engine {
    /// What is counted of the triggers of all tenants: the first `per_tenant` of each by themselves,
    /// in the order in which they were made, as long as there are no more than `max` in all.
    pub fn trigger_gauges(
        &self,
        per_tenant: usize,
        max: usize,
    ) -> Result<Vec<TriggerGauge>, Damaged> {
        let mut gauges = Vec::new();
        for shared in self.partitions() {
            let all: Vec<(Tenant, Arc<TenantTriggers>)> = {
                let partition = shared.lock();
                let index: &TriggerIndex = partition.index.of();
                let of = |tenant: &Tenant| Some((tenant.clone(), index.of_tenant(tenant)?.clone()));
                index.tenants().filter_map(of).collect()
            };
            let (reader, metrics) =
                (shared.state.reader(), shared.domains.part::<TriggerMetrics>());
            for (tenant, triggers) in all {
                let new = |id| TriggerGauge {
                    tenant: tenant.clone(),
                    id,
                    totals: TriggerTotals::default(),
                    matched: 0,
                    missed: 0,
                    dead_letters: 0,
                };
                let mut others: Option<TriggerGauge> = None;
                for (entry, number) in triggers.all().zip(0..) {
                    let id = entry.hook.id;
                    let counts =
                        (&reader).read(&keys::counts(id), record::decode_delivery_counts)?;
                    let (totals, counts) = (metrics.of(id), counts.unwrap_or_default());
                    if number < per_tenant && gauges.len() < max {
                        let mut gauge = new(Some(entry.hook.name.clone()));
                        gauge.add(entry, &totals, &counts);
                        gauges.push(gauge);
                    } else {
                        others.get_or_insert_with(|| new(None)).add(entry, &totals, &counts);
                    }
                }
                gauges.extend(others);
            }
        }
        Ok(gauges)
    }

    /// How a trigger fares.
    pub fn trigger_status(&self, trigger: &Trigger) -> Result<TriggerStatus, Damaged> {
        let (tenant, id) = (&trigger.hook.tenant, trigger.hook.id);
        let reader = self.partition(tenant).state.reader();
        let mut look = &reader;
        let counts = look.read(&keys::counts(id), record::decode_delivery_counts)?;
        let health = look.read(&keys::trigger_health(id), TriggerHealth::decode)?;
        let health = health.unwrap_or_default();
        let is_current = health.version == trigger.hook.version;
        Ok(TriggerStatus {
            counts: counts.unwrap_or_default(),
            last_success_at: health.last_success_at,
            last_failure_at: health.last_failure_at,
            last_error: health.last_error,
            window: if is_current { health.window } else { SloWindow::default() },
            evaluation_errors: look.read(&keys::evaluation_errors(id), EvaluationErrors::decode)?,
            position: self.trigger_position(tenant)?,
        })
    }

    /// How far the triggers of a tenant have come in its changes.
    pub fn trigger_position(&self, tenant: &Tenant) -> Result<TriggerPosition, Damaged> {
        let reader = self.partition(tenant).state.reader();
        let mut look = &reader;
        let head = look.read(&keys::change_head(tenant), ChangeHead::decode)?;
        let head = head.map_or(0, |head| head.seq);
        let (from, to) = keys::fan_outs(FACE, tenant);
        let first = reader.keys(&from, &to, 1)?;
        let first: Option<EventNo> = first.first().and_then(|key| keys::parse_event(key));
        let event = match first {
            Some(no) => source::event(&reader, FACE, tenant, no)?,
            None => None,
        };
        let Some(event) = event else {
            return Ok(TriggerPosition { head, told: head, waiting_since: None });
        };
        let told = change_seq(&event)?.saturating_sub(1);
        Ok(TriggerPosition { head, told, waiting_since: Some(event.at) })
    }
}
