//! How a trigger fares (ADM-6), and what is counted of it (ADM-7).

use http::StatusCode;
use reveille_core::delivery::hook::DeliveryCounts;
use reveille_core::trigger::dry_run::rate;
use reveille_core::trigger::rollout::SloSlot;
use reveille_engine::triggers::queries::Trigger;
use reveille_engine::triggers::status::TriggerStatus;
use serde_json::{Value, json};

use super::Target;
use super::error::Error;
use super::show::rollout_state;
use crate::Server;
use crate::http::reply::{self, Reply};

/// `GET …/status`
pub(super) fn show(server: &Server, target: &Target) -> Result<Reply, Error> {
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let status = server.engine.trigger_status(&trigger)?;
    let date = |at| server.engine.date_of(at).to_rfc3339();
    let counts = &status.counts;
    let position = &status.position;
    let seconds =
        position.waiting_since.map_or(0, |since| server.engine.clock().now().since(since) / 1_000);
    let errors = status.evaluation_errors.as_ref().map(|errors| {
        json!({
            "count": errors.count,
            "last": &*errors.last,
            "at": date(errors.at),
            "version": errors.version,
        })
    });
    let body = json!({
        "triggerId": &*target.id,
        "tenant": target.tenant.as_str(),
        "state": trigger.deployment.state.as_str(),
        "reason": trigger.reason.as_deref(),
        "version": trigger.deployment.version,
        "rollout": rollout_json(&trigger, &status),
        "health": health(counts),
        "lag": { "seq": position.head.saturating_sub(position.told), "seconds": seconds },
        "pending": counts.pending,
        "retrying": counts.failed,
        "dlq": counts.dead_letters,
        "delivered": counts.delivered,
        "dropped": counts.dropped,
        "attempts": counts.attempts,
        "failingSince": counts.failing_since.map(date),
        "lastSuccessAt": status.last_success_at.map(date),
        "lastFailureAt": status.last_failure_at.map(date),
        "lastError": status.last_error.as_deref(),
        "evalErrors": errors,
    });
    Ok(reply::json(StatusCode::OK, &body))
}

fn rollout_json(trigger: &Trigger, status: &TriggerStatus) -> Value {
    let mut rollout = trigger.definition.rollout.to_json();
    if let Value::Object(fields) = &mut rollout {
        fields.insert("state".into(), rollout_state(trigger).into());
        fields.insert("stableVersion".into(), trigger.deployment.stable.into());
        let slots = status.window.slots.iter();
        let SloSlot { samples, failed, slow, .. } = slots.fold(SloSlot::default(), SloSlot::plus);
        let error_rate = rate(failed.into(), samples.into());
        let window =
            json!({ "samples": samples, "failed": failed, "slow": slow, "errorRate": error_rate });
        fields.insert("window".into(), window);
    }
    rollout
}

/// One word for how its endpoint does.
fn health(counts: &DeliveryCounts) -> &'static str {
    match (counts.attempts, counts.failing_since) {
        (0, _) => "unknown",
        (_, None) => "healthy",
        (_, Some(_)) => "failing",
    }
}

/// `GET …/metrics`
pub(super) fn metrics(server: &Server, target: &Target) -> Result<Reply, Error> {
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let status = server.engine.trigger_status(&trigger)?;
    let counts = &status.counts;
    let ended = counts.delivered + counts.died + counts.dropped;
    let body = json!({
        "triggerId": &*target.id,
        "tenant": target.tenant.as_str(),
        "version": trigger.deployment.version,
        "matched": counts.begun,
        "success": counts.delivered,
        "fail": counts.died,
        "dropped": counts.dropped,
        "pending": counts.pending + counts.failed,
        "attempts": counts.attempts,
        // Every attempt of a delivery but its first.
        "retries": counts.attempts.saturating_sub(ended + counts.failed),
        "dlq": counts.dead_letters,
        "evalErrors": status.evaluation_errors.as_ref().map_or(0, |errors| errors.count),
    });
    Ok(reply::json(StatusCode::OK, &body))
}
