//! Triggers are made: one by one, or all those of a file at once.

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::trigger::TriggerId;
use reveille_core::trigger::definition::{Definition, Draft, FileDraft};
use reveille_engine::triggers::TriggerRejection;
use reveille_engine::triggers::change::AppliedTrigger;
use serde_json::{Value, json};

use super::body::{APPLY_BYTES_MAX, ReadRequest, reason};
use super::error::Error;
use super::show::trigger_json;
use super::{limits, signed};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::Fields;
use crate::http::inbound::OBJECT_BYTES_MAX;
use crate::http::page::Page;
use crate::http::reply::{self, Reply};

/// `POST /admin/v1/triggers`: a trigger, disabled until it is enabled (ADM-1).
pub(super) async fn create(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let request = ReadRequest::read(server, caller, request, OBJECT_BYTES_MAX).await?;
    signed::check(server, caller, &request, false)?;
    let body = Value::Object(request.object);
    let draft = Draft::parse(&body, &limits(server))?;
    if draft.version.is_some_and(|version| version != 1) {
        let why = "`version` is counted by the server, from 1: leave it out";
        return Err(RequestError::Field(why.into()).into());
    }
    let tenant = tenant_of(caller, draft.tenant)?;
    server.engine.check_destination(&draft.definition.url)?;
    let id = draft.id.unwrap_or_else(|| fresh_id(server));
    let engine = caller.engine(server);
    let key_id = caller.key_id();
    let made = engine.create_trigger(&tenant, &id, draft.definition, key_id, None).await?;
    Ok(reply::json(StatusCode::CREATED, &trigger_json(server, &made)))
}

/// The tenant of a body, or the caller's: who sees all chooses, the others have one.
pub(super) fn tenant_of(caller: &Caller, named: Option<Tenant>) -> Result<Tenant, Error> {
    match named {
        None => Ok(caller.tenant.clone()),
        Some(named) if named == caller.tenant || caller.sees_all() => Ok(named),
        Some(_) => Err(RequestError::Forbidden(
            "the key is for its own tenant alone; for another one it takes a key without a tenant",
        )
        .into()),
    }
}

fn fresh_id(server: &Server) -> TriggerId {
    let mut bytes = [0; 10];
    server.engine.entropy().fill(&mut bytes);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    TriggerId::parse(&format!("trg_{hex}")).expect("letters, digits and a line are an id")
}

/// `POST /admin/v1/triggers/apply`: the triggers of a file, all of them or none (DEF-3). Those that
/// are not there are made, disabled; those that are there become like this.
pub(super) async fn apply(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let mut request = ReadRequest::read(server, caller, request, APPLY_BYTES_MAX).await?;
    let fields = Fields(&request.object);
    let (is_dry, why) = (fields.flag("dryRun")?, reason(fields.text("reason")?)?);
    let mut body = std::mem::take(&mut request.object);
    for own in ["dryRun", "reason"] {
        body.remove(own);
    }
    let file = Draft::parse_file(&Value::Object(body), &limits(server))?;
    let FileDraft { tenant, triggers } = file;
    let tenant = tenant_of(caller, tenant)?;
    let planned = plan(server, &tenant, &triggers)?;
    let is_sensitive = planned.iter().any(|planned| planned.is_sensitive);
    signed::check(server, caller, &request, is_sensitive)?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "triggers").await?;
    if is_dry {
        for Planned { id, version, result, .. } in &planned {
            page.push(&applied_json(id.as_str(), *version, *result));
        }
        return Ok(page.finish(StatusCode::OK, &fields_of_answer(&tenant, true)));
    }
    let triggers = triggers.into_iter().map(|(id, _, definition)| (id, Arc::new(definition)));
    let engine = caller.engine(server);
    let triggers = triggers.collect();
    let applied = engine.apply_triggers(&tenant, triggers, caller.key_id(), why).await?;
    for (trigger, result) in &applied {
        page.push(&applied_json(trigger.id(), trigger.deployment.version, *result));
    }
    Ok(page.finish(StatusCode::OK, &fields_of_answer(&tenant, false)))
}

fn fields_of_answer(tenant: &Tenant, is_dry: bool) -> serde_json::Map<String, Value> {
    let fields = [("tenant", Value::from(tenant.as_str())), ("dryRun", is_dry.into())];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What will become of a trigger of a file.
struct Planned {
    id: TriggerId,
    version: u64,
    result: AppliedTrigger,
    /// Whether it is changed in a way that takes a signature.
    is_sensitive: bool,
}

fn plan(
    server: &Server,
    tenant: &Tenant,
    triggers: &[(TriggerId, Option<u64>, Definition)],
) -> Result<Vec<Planned>, Error> {
    let mut planned = Vec::with_capacity(triggers.len());
    for (id, seen, definition) in triggers {
        server.engine.check_destination(&definition.url)?;
        let found = server.engine.trigger(tenant, id.as_str())?;
        let version = found.as_ref().map_or(0, |found| found.deployment.version);
        if seen.is_some_and(|seen| seen != version && version > 0) {
            return Err(TriggerRejection::VersionMismatch { current: version }.into());
        }
        let (version, result, is_sensitive) = match &found {
            None => (1, AppliedTrigger::Created, false),
            Some(found) if *found.definition == *definition => {
                (version, AppliedTrigger::Unchanged, false)
            }
            Some(found) => {
                let sensitive = found.definition.sensitive_changes(definition);
                (version + 1, AppliedTrigger::Updated, !sensitive.is_empty())
            }
        };
        planned.push(Planned { id: id.clone(), version, result, is_sensitive });
    }
    Ok(planned)
}

fn applied_json(id: &str, version: u64, result: AppliedTrigger) -> Value {
    let result = match result {
        AppliedTrigger::Created => "created",
        AppliedTrigger::Updated => "updated",
        AppliedTrigger::Unchanged => "unchanged",
    };
    json!({ "triggerId": id, "version": version, "result": result })
}
