//! Replays of dead letters, and what is discarded like them: how far they have come.

use http::StatusCode;
use reveille_core::delivery::DeadReason;
use reveille_core::delivery::replay::{LetterAction, ReplayRecord};
use reveille_engine::deliveries::replay::{action_name, replay_named};
use serde_json::{Value, json};

use super::audit::tenant_asked_for;
use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// `GET /admin/v1/replays/{id}`, the same below `/admin/v1/dlq`, and `GET /admin/v1/dlq/discards/{id}`
pub(super) fn show(
    server: &Server,
    caller: &Caller,
    path: &str,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    query.check_known(&["tenant"])?;
    let tenant = tenant_asked_for(caller, &query)?.unwrap_or_else(|| caller.tenant.clone());
    let name = path.rsplit('/').next().unwrap_or_default();
    let found = match replay_named(name) {
        Some((action, id)) => {
            server.engine.replay(&tenant, id)?.filter(|it| it.selection.action == action)
        }
        None => None,
    };
    let found = found.ok_or_else(|| {
        Error::ReplayNotFound(format!("there is no replay {name:?} of this tenant"))
    })?;
    Ok(reply::json(StatusCode::OK, &replay_json(server, &found)))
}

pub(super) fn replay_json(server: &Server, replay: &ReplayRecord) -> Value {
    let name = action_name(replay.selection.action, replay.id);
    let state = if replay.ended_at.is_some() { "done" } else { "running" };
    if replay.selection.action == LetterAction::Discard {
        return json!({
            "discardId": name,
            "state": state,
            "total": replay.total,
            "discarded": replay.succeeded,
            "skipped": replay.skipped,
            "pending": replay.pending(),
            "operator": &*replay.actor,
            "reason": replay.reason.as_deref(),
            "deadReason": replay.selection.why.map(DeadReason::code),
            "begunAt": server.engine.date_of(replay.begun_at).0,
            "endedAt": replay.ended_at.map(|at| server.engine.date_of(at).0),
        });
    }
    json!({
        "replayId": name,
        "state": state,
        "total": replay.total,
        "succeeded": replay.succeeded,
        "failed": replay.failed,
        "dropped": replay.dropped,
        "skipped": replay.skipped,
        "skippedBecause": {
            "hookEnded": replay.hook_gone,
            "versionGone": replay.version_gone,
            "notDead": replay.skipped.saturating_sub(replay.hook_gone + replay.version_gone),
        },
        "useOriginalVersion": replay.selection.original,
        "pending": replay.pending(),
        "operator": &*replay.actor,
        "reason": replay.reason.as_deref(),
        "deadReason": replay.selection.why.map(DeadReason::code),
        "begunAt": server.engine.date_of(replay.begun_at).0,
        "endedAt": replay.ended_at.map(|at| server.engine.date_of(at).0),
    })
}
