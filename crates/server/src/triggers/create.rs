//! Triggers are made: one by one, or all those of a file at once.

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::trigger::TriggerId;
use reveille_core::trigger::definition::{Definition, Draft, FileDraft};
use reveille_engine::Error as EngineError;
use reveille_engine::triggers::TriggerRejection;
use reveille_engine::triggers::apply::{AppliedTrigger, TriggerDraft};
use reveille_kernel::task;
use serde_json::{Value, json};

use super::body::{APPLY_BYTES_MAX, ReadRequest, reason};
use super::change::TRIES;
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
    let engine = signed::engine(server, caller, &request, false)?;
    let body = Value::Object(request.object);
    let draft = Draft::parse(&body, &limits(server))?;
    if draft.version.is_some_and(|version| version != 1) {
        let why = "`version` is counted by the server, from 1: leave it out";
        return Err(RequestError::Field(why.into()).into());
    }
    let tenant = tenant_of(caller, draft.tenant)?;
    server.engine.check_destination(&draft.definition.url)?;
    let id = draft.id.unwrap_or_else(|| fresh_id(server));
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
    let (body, limits) = (Value::Object(body), limits(server));
    // A hundred conditions take a while to compile.
    let file = task::blocking(move || Draft::parse_file(&body, &limits)).await?;
    let FileDraft { tenant, triggers } = file;
    let tenant = tenant_of(caller, tenant)?;
    let triggers = triggers.into_iter().map(|(id, said, it)| (id, said, Arc::new(it)));
    let triggers: Vec<_> = triggers.collect();
    let mut page = Page::begin(&server.engine, &caller.tenant, "triggers").await?;
    let mut tries = 1;
    let applied = loop {
        let planned = plan(server, &tenant, &triggers)?;
        let is_sensitive = planned.iter().any(|it| it.is_sensitive);
        let engine = signed::engine(server, caller, &request, is_sensitive)?;
        if is_dry {
            for Planned { draft, version, result, .. } in &planned {
                page.push(&applied_json(draft.id.as_str(), *version, *result, Some(draft.seen)));
            }
            return Ok(page.finish(StatusCode::OK, &fields_of_answer(&tenant, true)));
        }
        let drafts = planned.into_iter().map(|planned| planned.draft).collect();
        let applied = engine.apply_triggers(&tenant, drafts, caller.key_id(), why.clone()).await;
        match applied {
            // What is decided is what was looked at; what was not is looked at again.
            Err(EngineError::Rejected(
                TriggerRejection::VersionMismatch { .. } | TriggerRejection::Gone { .. },
            )) if tries < TRIES => tries += 1,
            applied => break applied?,
        }
    };
    for (trigger, result) in &applied {
        page.push(&applied_json(trigger.id(), trigger.deployment.version, *result, None));
    }
    Ok(page.finish(StatusCode::OK, &fields_of_answer(&tenant, false)))
}

fn fields_of_answer(tenant: &Tenant, is_dry: bool) -> serde_json::Map<String, Value> {
    let fields = [("tenant", Value::from(tenant.as_str())), ("dryRun", is_dry.into())];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// What will become of a trigger of a file.
struct Planned {
    draft: TriggerDraft,
    version: u64,
    result: AppliedTrigger,
    /// Whether it is changed in a way that takes a signature.
    is_sensitive: bool,
}

fn plan(
    server: &Server,
    tenant: &Tenant,
    triggers: &[(TriggerId, Option<u64>, Arc<Definition>)],
) -> Result<Vec<Planned>, Error> {
    let mut planned = Vec::with_capacity(triggers.len());
    for (id, said, definition) in triggers {
        server.engine.check_destination(&definition.url)?;
        let found = server.engine.trigger(tenant, id.as_str())?;
        let seen = found.as_ref().map_or(0, |found| found.deployment.version);
        let name = || id.to_shared();
        match said {
            // The first version is what one that is not there will have.
            Some(2..) if seen == 0 => return Err(TriggerRejection::Gone { id: name() }.into()),
            Some(said) if seen > 0 && *said != seen => {
                let mismatch = TriggerRejection::VersionMismatch { id: name(), current: seen };
                return Err(mismatch.into());
            }
            _ => {}
        }
        let (version, result, is_sensitive) = match &found {
            None => (1, AppliedTrigger::Created, false),
            Some(found) if *found.definition == **definition => {
                (seen, AppliedTrigger::Unchanged, false)
            }
            Some(found) => {
                let sensitive = found.definition.sensitive_changes(definition);
                (seen + 1, AppliedTrigger::Updated, !sensitive.is_empty())
            }
        };
        let draft = TriggerDraft { id: id.clone(), definition: definition.clone(), seen };
        planned.push(Planned { draft, version, result, is_sensitive });
    }
    Ok(planned)
}

/// `seen` is the version that it is for, where it is only planned.
fn applied_json(id: &str, version: u64, result: AppliedTrigger, seen: Option<u64>) -> Value {
    let result = match result {
        AppliedTrigger::Created => "created",
        AppliedTrigger::Updated => "updated",
        AppliedTrigger::Unchanged => "unchanged",
    };
    let mut row = json!({ "triggerId": id, "version": version, "result": result });
    if let (Some(seen), Value::Object(fields)) = (seen, &mut row) {
        fields.insert("seen".into(), seen.into());
    }
    row
}
