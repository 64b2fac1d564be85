//! Changing and ending subscriptions.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::event::Shard;
use reveille_core::event::hook::{EventHookSpec, HookUpdate};
use reveille_engine::events::hook::EventHook;
use serde_json::json;

use super::body::Body;
use super::error::Error;
use super::show::{find_hook, hook_json, waiting};
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
    let note = if hook.is_active() { REACTIVATED } else { UNSUBSCRIBED };
    let answer = json!({
        "ok": true,
        "subscriptionId": id,
        "active": hook.is_active(),
        "shard": shard.label(namespace),
        "namespace": namespace,
        "note": note,
    });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// `POST /subscriptions/pause` and `/subscriptions/resume`
pub(super) async fn pause(
    server: &Server,
    scope: &Scope,
    is_paused: bool,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let body = Body::read(server, &scope.tenant, request).await?;
    body.check_known(&["subscriptionId"])?;
    let id = body.required("subscriptionId")?;
    let EventHook { hook, .. } = find_hook(server, scope, id)?;
    let hook = scope.engine(server).pause_hook(&hook.tenant, id, is_paused).await?;
    let answer = json!({
        "ok": true,
        "subscriptionId": id,
        "active": hook.is_active(),
        "paused": hook.paused,
        "waiting": waiting(&hook, &server.engine.counts(&hook)?),
        "namespace": namespace_of(&hook.tenant),
    });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// What it means that a subscription is not active, and is again.
const UNSUBSCRIBED: &str = "events that come from now on are not for this subscription; what \
    had begun is held until it is reactivated. POST /subscriptions/pause keeps what comes \
    meanwhile, too";
const REACTIVATED: &str = "events that come from now on are for this subscription; what came while \
    it was not active is not";

/// How long a secret that was replaced is valid beside the new one, unless its owner says otherwise.
const OVERLAP_MS_DEFAULT: u64 = 86_400_000;
const OVERLAP_MS_MAX: u64 = 30 * 86_400_000;

/// What can be changed about a subscription.
const FIELDS: &[&str] = &[
    "maxRetries",
    "timeoutMs",
    "rpcMethod",
    "workerId",
    "workerBinding",
    "pattern",
    "secret",
    "retry",
    "concurrency",
    "rateLimit",
];
/// What is shown of one, or said of a new one, and is no setting.
const FIXED: &[(&str, &str)] = &[
    ("active", "POST /subscriptions/unsubscribe and /subscriptions/reactivate do that"),
    ("paused", "POST /subscriptions/pause and /subscriptions/resume do that"),
    ("deliver", "it says where a new subscription begins"),
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
    let EventHook { hook, spec } = find_hook(server, scope, id)?;
    let (update, new_secret) = parse_update(server, &hook.tenant, &body)?;
    let edited = spec.edited(&update);
    let address = |spec: &EventHookSpec| server.config.workers.address(spec);
    if address(&edited) != address(&spec) {
        subscribe::check_address(server, &edited)?;
    }
    let hook = scope.engine(server).edit_hook(&hook.tenant, id, update).await?;
    let mut answer = json!({ "ok": true, "subscription": hook_json(server, &hook) });
    if let (Some(secret), Some(object)) = (new_secret, answer.as_object_mut()) {
        object.insert("secret".into(), secret.into());
    }
    subscribe::add_warnings(&mut answer, subscribe::warnings(server, &hook.spec));
    Ok(reply::json(StatusCode::OK, &answer))
}

/// What is to be changed, and a secret that is new and must be shown.
fn parse_update(
    server: &Server,
    tenant: &Tenant,
    body: &Body,
) -> Result<(HookUpdate, Option<String>), Error> {
    let (secret, new_secret) = subscribe::parse_secret(server, tenant, body)?;
    let update = HookUpdate {
        max_retries: body.max_retries()?,
        timeout_ms: body.timeout_ms()?,
        method: body.method()?,
        worker: body.worker()?,
        binding: body.raw("workerBinding").map(|_| subscribe::parse_binding(body)).transpose()?,
        pattern: body.pattern()?,
        secret: body.raw("secret").map(|_| secret),
        retry: subscribe::parse_retry(body)?,
        concurrency: body.concurrency()?,
        rate: body.rate()?,
    };
    Ok((update, new_secret))
}

/// `POST /subscriptions/{id}/rotate-secret`
pub(super) async fn rotate_secret(
    server: &Server,
    scope: &Scope,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let body = Body::read_optional(server, &scope.tenant, request).await?;
    body.check_known(&["overlap"])?;
    let overlap_ms = body.period_ms("overlap")?.unwrap_or(OVERLAP_MS_DEFAULT);
    if overlap_ms > OVERLAP_MS_MAX {
        return Err(Error::invalid_field("overlap", "must be at most \"30d\""));
    }
    let EventHook { hook, .. } = find_hook(server, scope, id)?;
    let (secret, text) = subscribe::new_secret(server, &hook.tenant);
    let engine = scope.engine(server);
    let hook = engine.rotate_hook_secret(&hook.tenant, id, secret, overlap_ms).await?;
    let former = hook.spec.former.secret.as_ref();
    let answer = json!({
        "ok": true,
        "subscriptionId": id,
        "secret": text,
        "previousSecretUntil": former.map(|(_, until)| until.0),
    });
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
