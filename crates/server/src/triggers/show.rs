//! Triggers and their versions, as they are shown: without the values of headers.

use http::{StatusCode, header};
use reveille_core::trigger::deployment::State;
use reveille_engine::triggers::queries::{Trigger, TriggerFilter};
use serde_json::{Map, Value, json};

use super::error::Error;
use super::{Target, create};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// The states that a list can be of.
const STATES: [&str; 4] = ["disabled", "enabled", "dry_run", "rolled_back"];

/// A trigger with its definition.
pub(super) fn trigger_json(server: &Server, trigger: &Trigger) -> Value {
    let hook = &trigger.hook;
    let date = |at| server.engine.date_of(at).to_rfc3339();
    let mut fields = trigger.definition.to_json();
    let state = trigger.deployment.state;
    let own = json!({
        "triggerId": &**trigger.id(),
        "tenant": hook.tenant.as_str(),
        "version": trigger.deployment.version,
        "state": state.as_str(),
        "isSending": state.is_sending(),
        "isSigned": trigger.is_signed,
        "stableVersion": trigger.deployment.stable,
        "reason": trigger.reason.as_deref(),
        "candidate": trigger.candidate.as_ref().map(|it| it.to_json()),
        "createdAt": date(hook.created_at),
        "updatedAt": date(hook.updated_at),
        "createdBy": hook.created_by.as_deref(),
    });
    if let Value::Object(own) = own {
        fields.extend(own);
    }
    Value::Object(fields)
}

/// An answer that is a trigger, with its version to be sent back as `If-Match`.
pub(super) fn trigger_reply(server: &Server, trigger: &Trigger) -> Reply {
    let mut reply = reply::json(StatusCode::OK, &trigger_json(server, trigger));
    let version = trigger.deployment.version;
    reply::set(reply.headers_mut(), header::ETAG, format!("\"{version}\""));
    reply
}

/// `GET /admin/v1/triggers/{tenant}/{id}`
pub(super) fn one(server: &Server, target: &Target) -> Result<Reply, Error> {
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    Ok(trigger_reply(server, &trigger))
}

/// `GET /admin/v1/triggers?tenant=&collection=&state=&after=&limit=`, in the order of their ids.
pub(super) async fn list(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    let named = query.get("tenant")?.map(reveille_core::Tenant::parse).transpose();
    let named = named.map_err(|error| RequestError::Query(format!("`tenant`: {error}")))?;
    let tenant = create::tenant_of(caller, named)?;
    let state = query.get("state")?;
    if state.is_some_and(|state| !STATES.contains(&state)) {
        let known = STATES.join(", ");
        return Err(RequestError::Query(format!("`state` is one of {known}")).into());
    }
    let filter = TriggerFilter { collection: query.get("collection")?, state };
    let limit = page_limit(query)?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "triggers").await?;
    let (mut taken, mut last, mut next) = (0, None, None);
    let mut take = |trigger: &Trigger| {
        if taken == limit || !page.push(&trigger_json(server, trigger)) {
            next = last.take();
            return false;
        }
        taken += 1;
        last = Some(trigger.id().to_string());
        true
    };
    server.engine.triggers(&tenant, filter, query.after_or_cursor()?, &mut take).await?;
    Ok(page.finish_with_next(next))
}

/// `GET …/versions`: those that are kept, the newest first (ADM-4).
pub(super) async fn versions(
    server: &Server,
    caller: &Caller,
    target: &Target,
) -> Result<Reply, Error> {
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "versions").await?;
    for version in server.engine.trigger_versions(&trigger)? {
        let definition = &version.definition;
        page.push(&json!({
            "version": version.hook.version,
            "label": definition.label.as_deref(),
            "at": server.engine.date_of(version.hook.updated_at).to_rfc3339(),
            "isCurrent": version.hook.version == trigger.hook.version,
            "isStable": Some(version.hook.version) == trigger.deployment.stable,
            "collection": definition.collection.as_str(),
            "url": &*definition.url,
        }));
    }
    Ok(page.finish(StatusCode::OK, &Map::new()))
}

/// `GET …/versions/{version}`
pub(super) fn version(server: &Server, target: &Target, text: &str) -> Result<Reply, Error> {
    let version = text.parse();
    let version = version.map_err(|_| {
        RequestError::Query(
            "a version is a whole number; `versions` lists those that are kept".into(),
        )
    })?;
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let found = server.engine.trigger_version(&trigger, version)?;
    let no_version = reveille_engine::triggers::TriggerRejection::NoVersion { version };
    let found = found.ok_or(no_version)?;
    let mut fields = found.definition.to_json();
    fields.insert("triggerId".into(), target.id.as_str().into());
    fields.insert("tenant".into(), target.tenant.as_str().into());
    fields.insert("version".into(), version.into());
    let at = server.engine.date_of(found.hook.updated_at).to_rfc3339();
    fields.insert("at".into(), at.into());
    Ok(reply::json(StatusCode::OK, &Value::Object(fields)))
}

/// What is said of how a version is rolled out.
pub(super) fn rollout_state(trigger: &Trigger) -> &'static str {
    match trigger.deployment.state {
        State::RolledBack { .. } => "rolled_back",
        _ if trigger.definition.rollout.is_full() => "complete",
        _ => "in_progress",
    }
}
