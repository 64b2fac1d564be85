//! Work under a lease: told by webhook and called back, or claimed, reported on and given back.

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::consumer::{Ack, ClaimedWake, Rejected};
use reveille_core::subscription::{STREAM_ROOT, Subscription, Target};
use reveille_core::token::Claims;
use reveille_core::{Millis, Tenant};
use reveille_engine::{Failure, Refused};
use serde_json::json;

use super::{body_of, find};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::wakes::fields::{self, Fields, Wrong};
use crate::wakes::{bearer_token, lease_stream};

/// The longest name of a worker in bytes: it is kept with the subscription's consumer.
const WORKER_BYTES_MAX: usize = 256;

/// `POST subscriptions/:id/callback`. Whose it is says the token: an endpoint has no other key.
pub(super) async fn callback(
    server: &Server,
    whose: Option<&Tenant>,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let (claims, subscription) = shown(server, whose, id, &parts.headers)?;
    if !matches!(subscription.spec.target, Target::Webhook(_)) {
        let wrong = "a subscription of the type \"pull-wake\" is reported on with `ack`";
        return Err(Error::Subscription(wrong.into()));
    }
    report(server, claims, &parts, body).await
}

/// `POST subscriptions/:id/claim`
pub(super) async fn claim(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let body = body_of(server, &parts, body).await?;
    let body = fields::object(&body.bytes).map_err(Error::Subscription)?;
    let worker = worker(&Fields(&body)).map_err(Error::Subscription)?;
    pulled(&find(server, &caller.tenant, id)?)?;
    let (lease, token, streams) = server.engine.claim(&caller.tenant, id, worker).await?;
    let body = json!({
        "wake_id": lease.wake_id.to_string(),
        "generation": lease.generation,
        "token": token,
        "streams": streams.iter().map(lease_stream).collect::<Vec<_>>(),
        "lease_ttl_ms": lease.lease_ms,
    });
    Ok(reply::json(StatusCode::OK, &body))
}

/// `POST subscriptions/:id/ack`; one that is neither done nor acknowledges shows a sign of life.
pub(super) async fn ack(
    server: &Server,
    whose: Option<&Tenant>,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let claims = holder(server, whose, id, &parts.headers)?;
    report(server, claims, &parts, body).await
}

/// `POST subscriptions/:id/release`
pub(super) async fn release(
    server: &Server,
    whose: Option<&Tenant>,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let claims = good(holder(server, whose, id, &parts.headers)?)?;
    let body = body_of(server, &parts, body).await?;
    let body = fields::object(&body.bytes).map_err(Error::Subscription)?;
    let (generation, wake_id) = wake(&Fields(&body)).map_err(Error::Subscription)?;
    let expires_at = claims.expires_at;
    let released = server.engine.release(claims, generation, wake_id).await;
    released.map_err(|failure| refused(server, expires_at, failure))?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

async fn report(
    server: &Server,
    claims: Option<Claims>,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Error> {
    let claims = good(claims)?;
    let body = body_of(server, parts, body).await?;
    let body = fields::object(&body.bytes).map_err(Error::Subscription)?;
    let fields = Fields(&body);
    let (generation, wake_id) = wake(&fields).map_err(Error::Subscription)?;
    let acks = acks(&fields).map_err(Error::Subscription)?;
    let done = fields.flag("done").map_err(Error::Subscription)?;
    let expires_at = claims.expires_at;
    let reported = server.engine.lease_report(claims, generation, wake_id, acks, done).await;
    let next_wake = reported.map_err(|failure| refused(server, expires_at, failure))?;
    Ok(reply::json(StatusCode::OK, &json!({ "ok": true, "next_wake": next_wake })))
}

fn token_of(headers: &HeaderMap) -> Result<&str, Error> {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    value.and_then(bearer_token).ok_or_else(|| Refused::TokenInvalid.into())
}

/// What the token of a lease on work that is pulled says.
fn holder(
    server: &Server,
    whose: Option<&Tenant>,
    id: &str,
    headers: &HeaderMap,
) -> Result<Option<Claims>, Error> {
    let (claims, subscription) = shown(server, whose, id, headers)?;
    pulled(&subscription)?;
    Ok(claims)
}

/// What the token says, and the subscription that it is for. A token that says nothing is for one
/// of the caller's, if nobody needs a key; else its holder learns nothing, not even what there is.
fn shown(
    server: &Server,
    whose: Option<&Tenant>,
    id: &str,
    headers: &HeaderMap,
) -> Result<(Option<Claims>, Subscription), Error> {
    let claims = server.engine.lease_claims(None, id, token_of(headers)?);
    let tenant = claims.as_ref().map(|claims| &claims.tenant).or(whose);
    let subscription = find(server, tenant.ok_or(Refused::TokenInvalid)?, id)?;
    Ok((claims, subscription))
}

/// What the token says, if it is one.
fn good(claims: Option<Claims>) -> Result<Claims, Error> {
    claims.ok_or_else(|| Refused::TokenInvalid.into())
}

/// Why the holder of a token was turned away. One that holds its lease is not, however old the
/// token is; who does not, and comes late, is told that it is too late.
fn refused(server: &Server, expires_at: Millis, failure: Failure) -> Error {
    let fenced = Failure::Refused(Refused::Consumer(Rejected::Fenced));
    if failure == fenced && expires_at <= server.engine.clock().now() {
        return Error::LeaseTokenExpired;
    }
    failure.into()
}

fn pulled(subscription: &Subscription) -> Result<(), Error> {
    match subscription.spec.target {
        Target::Pull(_) => Ok(()),
        Target::Webhook(_) => {
            let wrong = "only a subscription of the type \"pull-wake\" is claimed, acknowledged \
                         and released; this one calls its webhook";
            Err(Error::Subscription(wrong.into()))
        }
    }
}

fn worker<'a>(fields: &Fields<'a>) -> Result<&'a str, Wrong> {
    let worker = fields.text("worker")?.ok_or("`worker` is missing; give the worker's name")?;
    if worker.is_empty() || worker.len() > WORKER_BYTES_MAX {
        return Err(format!("`worker` must be 1 to {WORKER_BYTES_MAX} bytes long"));
    }
    Ok(worker)
}

/// The wake that is spoken for.
fn wake(fields: &Fields<'_>) -> Result<(u64, ClaimedWake), Wrong> {
    let generation = fields.number("generation")?;
    let generation = generation.ok_or("`generation` is missing; send the one of the wake")?;
    let wake_id = fields.wake_id()?.ok_or("`wake_id` is missing; send the one of the wake")?;
    Ok((generation, wake_id))
}

fn acks(fields: &Fields<'_>) -> Result<Vec<Ack>, Wrong> {
    fields.acks("stream", |stream| format!("{STREAM_ROOT}{stream}"))
}
