//! Dry runs: what a trigger would send, or a candidate beside it, is counted and not sent (ROL-1).

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Millis;
use reveille_core::trigger::definition::Definition;
use reveille_engine::triggers::TriggerRejection;
use reveille_engine::triggers::change::TriggerChange;
use reveille_engine::triggers::queries::Trigger;
use serde_json::Value;

use super::body::ReadRequest;
use super::error::Error;
use super::show::trigger_reply;
use super::{Target, limits, signed};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::FieldError;
use crate::http::moment;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// A draft that a body may have: the definition of the trigger, changed by a merge patch.
pub(super) fn draft(
    server: &Server,
    trigger: &Trigger,
    request: &ReadRequest,
) -> Result<Option<Definition>, Error> {
    match request.fields().get("definition") {
        None => Ok(None),
        Some(patch @ Value::Object(_)) => {
            Ok(Some(trigger.definition.patched(patch, &limits(server))?.definition))
        }
        Some(_) => Err(FieldError::from("`definition` must be an object").into()),
    }
}

/// `POST …/dry-run {"definition"?,"reason"?}`: without a definition the trigger itself runs dry; with
/// one that runs dry beside it.
pub(super) async fn begin(
    server: &Server,
    caller: &Caller,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let known = ["definition", "reason"];
    let request = ReadRequest::read_known(server, caller, request, &known).await?;
    let engine = signed::engine(server, caller, &request, false)?;
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let candidate = draft(server, &trigger, &request)?.map(Arc::new);
    let why = request.reason()?;
    let change = TriggerChange::DryRun { candidate };
    let (tenant, id) = (&target.tenant, &target.id);
    let version = Some(trigger.deployment.version);
    let changed = engine.change_trigger(tenant, id, version, change, why).await?;
    Ok(trigger_reply(server, &changed))
}

/// `GET …/dry-run?from=&to=`
pub(super) fn report(server: &Server, target: &Target, query: &Query) -> Result<Reply, Error> {
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let is_dry = !trigger.deployment.state.is_sending() && trigger.deployment.state.is_evaluating();
    if trigger.candidate.is_none() && !is_dry {
        return Err(TriggerRejection::NoDryRun.into());
    }
    let time = |date| server.engine.time_of(date);
    let from = moment::of_query(query, "from")?.map_or(Millis(0), time);
    let to = moment::of_query(query, "to")?.map_or(Millis::NEVER, time);
    let counted = server.engine.trigger_dry_run(&trigger)?;
    // Beside a candidate the trigger goes on as it was.
    let live = trigger.candidate.as_ref().map(|_| trigger.deployment.version);
    Ok(reply::json(StatusCode::OK, &counted.report(from, to, live)))
}

/// `DELETE …/dry-run`
pub(super) async fn end(server: &Server, caller: &Caller, target: &Target) -> Result<Reply, Error> {
    let engine = caller.engine(server);
    let (tenant, id) = (&target.tenant, &target.id);
    engine.change_trigger(tenant, id, None, TriggerChange::EndDryRun, None).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}
