//! The cleaner: forgets events that came and deliveries that ended long ago, and whatever else is of
//! no use any more. Nobody waits for it, and nothing but room depends on it.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::EventNo;
use reveille_core::delivery::replay::ReplayRecord;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::{Damaged, Error, Never, Unavailable};
use reveille_kernel::task;
use reveille_schema::{Record, keys};
use tokio::sync::Notify;

use crate::app::Shared;
use crate::deliveries::ended::EndedHookIndex;
use crate::deliveries::face::DeliveryFaces;
use crate::deliveries::index::{HookAge, HookIndex};
use crate::deliveries::retention::{ExpireDeliveries, ForgetDeliveries, ForgetReplays, SweepKeys};
use crate::deliveries::trim::{TrimEvents, TrimPlan};
use crate::engine::{Engine, Retention, WeakEngine};
use crate::limits::{CLEAN_UP_SLICE, INDEX_SLICE};
use crate::records::Scan;

/// From one round to the next, at most.
const EVERY_MS: u64 = 70_000;
/// From one look through events and deliveries to the next, at most and at least.
const LOOK_EVERY_MS: u64 = 3_600_000;
const LOOK_OFTEN_MS: u64 = 1_000;

/// What is kept for a short time is looked through often.
fn look_every_ms(retention: Retention) -> u64 {
    let shortest = retention.events_ms.min(retention.deliveries_ms);
    (shortest / 10).clamp(LOOK_OFTEN_MS, LOOK_EVERY_MS)
}

/// Works until the engine stops, or nobody has it any more.
pub(crate) async fn work(engine: WeakEngine, stop: Arc<Notify>, retention: Retention) {
    let every_ms = look_every_ms(retention);
    let mut look_at = Millis(0);
    loop {
        let Some(engine) = engine.upgrade() else { return };
        let clock = engine.clock().clone();
        let now = clock.now();
        // However quiet it is, dates are compared with a wall clock that was looked at.
        engine.follow_wall_clock();
        // A clock that was set back must not delay it.
        let is_time = now >= look_at || look_at.since(now) > every_ms;
        let mut done = sweep(&engine, now).await;
        if done.is_ok() && is_time {
            done = look_through(&engine, now, retention).await;
        }
        match done {
            Ok(()) if is_time => look_at = now + every_ms,
            Ok(()) => {}
            Err(Error::Unavailable(Unavailable::Stopping)) => return,
            Err(error) => tracing::warn!(%error, "cleaning up failed; trying again"),
        }
        drop(engine);
        tokio::select! {
            biased;
            () = stop.notified() => return,
            () = clock.sleep_until(clock.now() + EVERY_MS.min(every_ms)) => {}
        }
    }
}

/// Forgets what is older than it is kept: deliveries first, which events are kept for.
async fn look_through(
    engine: &Engine,
    now: Millis,
    retention: Retention,
) -> Result<(), Error<Never>> {
    let before = |retain_ms| Millis(now.0.saturating_sub(retain_ms));
    engine.expire_deliveries(before(retention.deliveries_ms)).await?;
    let forgotten = engine.clean_up(None, before(retention.deliveries_ms)).await?;
    if forgotten > 0 {
        tracing::info!(forgotten, "deliveries that ended long ago were forgotten");
    }
    let forgotten = engine.trim_sources(|retain| before(retain(retention))).await?;
    if forgotten > 0 {
        tracing::info!(forgotten, "events that came long ago were forgotten");
    }
    engine.forget_replays(before(retention.deliveries_ms)).await?;
    let forgotten = engine.trim_audit(before(retention.events_ms)).await?;
    if forgotten > 0 {
        tracing::info!(forgotten, "rows of the audit log from long ago were forgotten");
    }
    Ok(())
}

impl Engine {
    /// Forgets events of all sources that came before a time, but for those that somebody may still
    /// be told of and those behind them. Returns how many.
    pub async fn trim_events(&self, cutoff: Millis) -> Result<u64, Error<Never>> {
        self.trim_sources(|_| cutoff).await
    }

    /// The same, each source by the time that its face says.
    async fn trim_sources(
        &self,
        cutoff: impl Fn(&dyn Fn(Retention) -> u64) -> Millis,
    ) -> Result<u64, Error<Never>> {
        let mut all = 0;
        for shared in self.partitions() {
            let (mut from, to) = keys::all_events();
            loop {
                let first = shared.state.reader().keys(&from, &to, 1).map_err(Damaged::from)?;
                let source = first.first().and_then(|key| keys::parse_event_source(key));
                let Some((id, tenant)) = source else { break };
                (_, from) = keys::events(id, &tenant, EventNo(0));
                let face = shared.domains.part::<DeliveryFaces>().get(id)?;
                let cutoff = cutoff(&|retention| face.retain_ms(retention));
                all += self.trim_events_of(shared, id, &tenant, cutoff).await?;
            }
        }
        Ok(all)
    }

    async fn trim_events_of(
        &self,
        shared: &Arc<Shared>,
        face: FaceId,
        tenant: &Tenant,
        cutoff: Millis,
    ) -> Result<u64, Error<Never>> {
        let mut all = 0;
        loop {
            let (reader, of) = (shared.state.reader(), tenant.clone());
            let plan = task::blocking(move || TrimPlan::make(&reader, face, &of, cutoff)).await?;
            let Some(plan) = plan else { return Ok(all) };
            let command = TrimEvents { face, tenant: tenant.clone(), plan };
            let forgotten = self.trim_events_until(shared, &command).await?;
            all += forgotten;
            if plan.needed {
                let tenant = tenant.as_str();
                tracing::debug!(tenant, "old events are kept for those who are still to be told");
            }
            if !plan.more || forgotten == 0 {
                return Ok(all);
            }
        }
    }

    async fn trim_events_until(
        &self,
        shared: &Arc<Shared>,
        command: &TrimEvents,
    ) -> Result<u64, Error<Never>> {
        let mut all = 0;
        loop {
            let slice = self.submit_to(shared, command).await?;
            all += slice.forgotten;
            if slice.next.is_none() || slice.forgotten == 0 {
                return Ok(all);
            }
        }
    }

    /// Forgets deliveries of a tenant, or of all, that ended before a time. Returns how many.
    pub async fn clean_up(
        &self,
        tenant: Option<&Tenant>,
        cutoff: Millis,
    ) -> Result<u64, Error<Never>> {
        let mut all = 0;
        for shared in self.partitions() {
            let mut than = None;
            loop {
                let hooks = shared.lock().index.of::<HookIndex>().older(tenant, than, INDEX_SLICE);
                let Some(oldest) = hooks.last() else { break };
                than = Some(HookAge::of(oldest));
                for hook in hooks {
                    all += self.clean_up_hook(shared, hook.id, cutoff).await?;
                }
            }
            let mut next = HookId(0);
            loop {
                let ended =
                    shared.lock().index.of::<EndedHookIndex>().from(tenant, next, INDEX_SLICE);
                let Some(last) = ended.last() else { break };
                next = HookId(last.0 + 1);
                for hook in ended {
                    all += self.clean_up_hook(shared, hook, cutoff).await?;
                }
            }
        }
        Ok(all)
    }

    /// Gives up deliveries that have waited since before a time because nothing is sent to their
    /// hooks. Returns how many.
    pub async fn expire_deliveries(&self, cutoff: Millis) -> Result<u64, Error<Never>> {
        let mut all = 0;
        for shared in self.partitions() {
            let mut than = None;
            loop {
                let hooks = shared.lock().index.of::<HookIndex>().older(None, than, INDEX_SLICE);
                let Some(oldest) = hooks.last() else { break };
                than = Some(HookAge::of(oldest));
                let is_old = |hook: &&Arc<Hook>| hook.stopped_since().is_some_and(|at| at < cutoff);
                for hook in hooks.iter().filter(is_old) {
                    all += self.expire_deliveries_of(shared, hook, cutoff).await?;
                }
            }
        }
        Ok(all)
    }

    async fn expire_deliveries_of(
        &self,
        shared: &Arc<Shared>,
        hook: &Hook,
        cutoff: Millis,
    ) -> Result<u64, Error<Never>> {
        let (mut expired, mut after) = (0, Bytes::new());
        loop {
            let command = ExpireDeliveries { hook: hook.id, cutoff, after };
            let slice = self.submit_to(shared, &command).await?;
            expired += slice.forgotten;
            let Some(next) = slice.next else { break };
            after = next;
        }
        if expired > 0 {
            let (hook, tenant) = (&*hook.name, hook.tenant.as_str());
            tracing::warn!(
                hook,
                tenant,
                expired,
                "deliveries waited too long for their hook to go on, and are dead letters now"
            );
        }
        Ok(expired)
    }

    /// Forgets replays that ended before a time.
    async fn forget_replays(&self, cutoff: Millis) -> Result<(), Error<Never>> {
        for shared in self.partitions() {
            let (from, to) = keys::all_replays();
            let (reader, mut found) = (shared.state.reader(), Vec::new());
            for pair in Scan::new(&reader, from, to) {
                let (key, value) = pair?;
                let replay = ReplayRecord::decode(&value).map_err(Damaged::new)?;
                if replay.ended_at.is_some_and(|at| at < cutoff) {
                    found.push(key);
                }
                if found.len() == CLEAN_UP_SLICE {
                    break;
                }
            }
            if !found.is_empty() {
                self.submit_to(shared, &ForgetReplays { found }).await?;
            }
        }
        Ok(())
    }

    async fn clean_up_hook(
        &self,
        shared: &Arc<Shared>,
        hook: HookId,
        cutoff: Millis,
    ) -> Result<u64, Error<Never>> {
        let mut all = 0;
        let mut after = Bytes::new();
        loop {
            let command = ForgetDeliveries { hook, cutoff, after };
            let slice = self.submit_to(shared, &command).await?;
            all += slice.forgotten;
            let Some(next) = slice.next else { return Ok(all) };
            after = next;
        }
    }
}

/// Removes keys whose time has passed, in slices.
async fn sweep(engine: &Engine, now: Millis) -> Result<(), Error<Never>> {
    for shared in engine.partitions() {
        loop {
            let (from, to) = keys::later_until(now);
            let found = shared.state.reader().keys(&from, &to, CLEAN_UP_SLICE);
            let found = found.map_err(Damaged::from)?;
            let full = found.len() == CLEAN_UP_SLICE;
            if found.is_empty() {
                break;
            }
            engine.submit_to(shared, &SweepKeys { found }).await?;
            if !full {
                break;
            }
        }
    }
    Ok(())
}
