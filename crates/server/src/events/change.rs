//! Changing and ending subscriptions.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::delivery::hook::{Edit, Wish};
use reveille_core::event::Shard;
use serde_json::json;

use super::body::Body;
use super::refusal::Refusal;
use super::show::{found, shown};
use super::{Scope, namespace_of, subscribe};
use crate::Server;
use crate::reply::{self, Reply};

/// `POST /subscriptions/unsubscribe` and `/subscriptions/reactivate`
pub(super) async fn activate(
    server: &Server,
    scope: &Scope,
    active: bool,
    request: Request<Incoming>,
) -> Result<Reply, Refusal> {
    let body = Body::read(server, request).await?;
    let id = body.required("subscriptionId")?;
    let hint = body.text("shard")?;
    let hook = found(server, scope, id)?;
    let Wish::Events(wish) = &hook.wish;
    let (shard, namespace) = (Shard::of_pattern(&wish.pattern), namespace_of(&hook.tenant));
    if hint.is_some_and(|hint| !shard.is_meant_by(hint, namespace)) {
        return Err(Refusal::no_subscription());
    }
    let hook = server.engine.activate_hook(&hook.tenant, id, active).await?;
    let answer = json!({
        "ok": true,
        "subscriptionId": id,
        "active": hook.is_active(),
        "shard": shard.label(namespace),
        "namespace": namespace,
    });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// `PUT /subscriptions/{id}`
pub(super) async fn edit(
    server: &Server,
    scope: &Scope,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Refusal> {
    let body = Body::read(server, request).await?;
    let edit = Edit {
        max_retries: body.max_retries()?,
        timeout_ms: body.timeout_ms()?,
        method: body.method()?,
    };
    let hook = found(server, scope, id)?;
    if let Some(method) = &edit.method {
        let Wish::Events(mut wish) = hook.wish.clone();
        wish.method = method.clone();
        subscribe::check_address(server, &wish)?;
    }
    let hook = server.engine.edit_hook(&hook.tenant, id, edit).await?;
    let answer = json!({ "ok": true, "subscription": shown(&hook) });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// `DELETE /subscriptions/{id}`
pub(super) async fn delete(server: &Server, scope: &Scope, id: &str) -> Result<Reply, Refusal> {
    let hook = found(server, scope, id)?;
    let tally = server.engine.unhook(&hook.tenant, id).await?;
    let answer = json!({
        "ok": true,
        "deleted": {
            "deliveries": tally.kept,
            "logs": tally.logs,
            "deadLetters": tally.dead_letters,
        },
    });
    Ok(reply::json(StatusCode::OK, &answer))
}
