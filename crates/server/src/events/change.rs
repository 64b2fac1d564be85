//! Changing and ending subscriptions.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::event::Shard;
use reveille_core::event::hook::HookUpdate;
use reveille_engine::events::hook::EventHook;
use serde_json::json;

use super::body::Body;
use super::error::Error;
use super::show::{find_hook, hook_json};
use super::{Scope, namespace_of, subscribe};
use crate::Server;
use crate::http::reply::{self, Reply};

/// `POST /subscriptions/unsubscribe` and `/subscriptions/reactivate`
pub(super) async fn activate(
    server: &Server,
    scope: &Scope,
    is_active: bool,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let body = Body::read(server, &scope.tenant, request).await?;
    body.check_known(&["subscriptionId", "shard"])?;
    let id = body.required("subscriptionId")?;
    let hint = body.text("shard")?;
    let EventHook { hook, spec } = find_hook(server, scope, id)?;
    let (shard, namespace) = (Shard::of_pattern(&spec.pattern), namespace_of(&hook.tenant));
    if hint.is_some_and(|hint| !shard.is_meant_by(hint, namespace)) {
        return Err(Error::subscription_not_found());
    }
    let hook = scope.engine(server).activate_hook(&hook.tenant, id, is_active).await?;
    let answer = json!({
        "ok": true,
        "subscriptionId": id,
        "active": hook.is_active(),
        "shard": shard.label(namespace),
        "namespace": namespace,
    });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// What can be changed about a subscription.
const FIELDS: &[&str] = &["maxRetries", "timeoutMs", "rpcMethod"];
/// What is shown of one, or said of a new one, and is no setting.
const FIXED: &[(&str, &str)] = &[
    ("active", "POST /subscriptions/unsubscribe and /subscriptions/reactivate do that"),
    ("deliver", "it says where a new subscription begins"),
    ("workerId", "subscribe anew"),
    ("workerBinding", "subscribe anew"),
    ("pattern", "subscribe anew"),
    ("secret", "subscribe anew"),
    ("id", "it is given once"),
    ("subscriptionId", "it is given once, and stands in the path"),
    ("patternPrefix", "it follows from the pattern"),
    ("shard", "it follows from the pattern"),
    ("namespace", "a subscription stays in its namespace"),
    ("signed", "it follows from the secret"),
    ("createdAt", "it is when the subscription was made"),
    ("created_by", "it is who made the subscription"),
    ("updatedAt", "it is when the subscription was last changed"),
];

/// `PUT /subscriptions/{id}`
pub(super) async fn edit(
    server: &Server,
    scope: &Scope,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let body = Body::read(server, &scope.tenant, request).await?;
    body.check_fixed(FIXED)?;
    body.check_known(FIELDS)?;
    let edit = HookUpdate {
        max_retries: body.max_retries()?,
        timeout_ms: body.timeout_ms()?,
        method: body.method()?,
    };
    let EventHook { hook, spec } = find_hook(server, scope, id)?;
    if edit.method.is_some() {
        subscribe::check_address(server, &spec.edited(&edit))?;
    }
    let hook = scope.engine(server).edit_hook(&hook.tenant, id, edit).await?;
    let mut answer = json!({ "ok": true, "subscription": hook_json(&hook) });
    subscribe::add_warnings(&mut answer, subscribe::warnings(server, &hook.spec));
    Ok(reply::json(StatusCode::OK, &answer))
}

/// `DELETE /subscriptions/{id}`
pub(super) async fn delete(server: &Server, scope: &Scope, id: &str) -> Result<Reply, Error> {
    let EventHook { hook, .. } = find_hook(server, scope, id)?;
    let counts = scope.engine(server).unhook(&hook.tenant, id).await?;
    let answer = json!({
        "ok": true,
        "deleted": {
            "deliveries": counts.kept,
            "logs": counts.logs,
            "deadLetters": counts.dead_letters,
        },
    });
    Ok(reply::json(StatusCode::OK, &answer))
}
