//! Work under a lease: told by webhook and called back, or claimed, reported on and given back.

use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::consumer::{Ack, ClaimedWake, Rejected};
use reveille_core::subscription::{STREAM_ROOT, Subscription, Target};
use reveille_core::token::Claims;
use reveille_core::{Millis, Tenant};
use reveille_engine::wakes::{WakeError, WakeRejection};
use serde_json::json;

use super::error::Error;
use super::payload::StreamPayload;
use super::{find, read_body};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::auth::bearer_token;
use crate::http::error::RequestError;
use crate::http::fields::{self, FieldError, Fields};
use crate::http::reply::{self, Reply};
use crate::http::subscription::{parse_acks, parse_claimed_wake};

/// The longest name of a worker in bytes: it is kept with the subscription's consumer.
const WORKER_BYTES_MAX: usize = 256;

/// `POST subscriptions/:id/callback`. Whose it is says the token: an endpoint has no other key.
pub(super) async fn callback(
    server: &Server,
    tenant: Option<&Tenant>,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let (claims, subscription) = token_claims(server, tenant, id, &parts.headers)?;
    if !matches!(subscription.spec.target, Target::Webhook(_)) {
        let message = "a subscription of the type \"pull-wake\" is reported on with `ack`";
        return Err(FieldError::from(message).into());
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
    let body = read_body(server, &caller.tenant, &parts, body).await?;
    let body = fields::parse_object(&body.bytes)?;
    let worker = parse_worker(&Fields(&body))?;
    check_pull(&find(server, &caller.tenant, id)?)?;
    let (lease, token, streams) = server.engine.claim(&caller.tenant, id, worker).await?;
    let body = json!({
        "wake_id": lease.wake_id.to_string(),
        "generation": lease.generation,
        "token": token,
        "streams": streams.iter().map(StreamPayload::of).collect::<Vec<_>>(),
        "lease_ttl_ms": lease.lease_ms,
    });
    Ok(reply::json(StatusCode::OK, &body))
}

/// `POST subscriptions/:id/ack`; one that is neither done nor acknowledges shows a sign of life.
pub(super) async fn ack(
    server: &Server,
    tenant: Option<&Tenant>,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let claims = pull_claims(server, tenant, id, &parts.headers)?;
    report(server, claims, &parts, body).await
}

/// `POST subscriptions/:id/release`
pub(super) async fn release(
    server: &Server,
    tenant: Option<&Tenant>,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let claims = valid_claims(pull_claims(server, tenant, id, &parts.headers)?)?;
    let body = read_body(server, &claims.tenant, &parts, body).await?;
    let body = fields::parse_object(&body.bytes)?;
    let (generation, wake_id) = parse_wake(&Fields(&body))?;
    let expires_at = claims.expires_at;
    let outcome = server.engine.release(claims, generation, wake_id).await;
    outcome.map_err(|failure| lease_error(server, expires_at, failure))?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// What the holder of a lease says of its work.
struct ReportBody {
    generation: u64,
    wake_id: ClaimedWake,
    acks: Vec<Ack>,
    done: bool,
}

impl ReportBody {
    fn parse(body: &[u8]) -> Result<ReportBody, FieldError> {
        let body = fields::parse_object(body)?;
        let fields = Fields(&body);
        let (generation, wake_id) = parse_wake(&fields)?;
        let acks = parse_acks(&fields, "stream", |stream| format!("{STREAM_ROOT}{stream}"))?;
        Ok(ReportBody { generation, wake_id, acks, done: fields.flag("done")? })
    }
}

async fn report(
    server: &Server,
    claims: Option<Claims>,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Error> {
    let claims = valid_claims(claims)?;
    server.engine.turn(&claims.tenant).await.map_err(RequestError::from)?;
    let body = read_body(server, &claims.tenant, parts, body).await?;
    let ReportBody { generation, wake_id, acks, done } = ReportBody::parse(&body.bytes)?;
    let expires_at = claims.expires_at;
    let outcome = server.engine.lease_report(claims, generation, wake_id, acks, done).await;
    let next_wake = outcome.map_err(|failure| lease_error(server, expires_at, failure))?;
    Ok(reply::json(StatusCode::OK, &json!({ "ok": true, "next_wake": next_wake })))
}

/// The token of the header `Authorization`.
fn token(headers: &HeaderMap) -> Result<&str, Error> {
    let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    value.and_then(bearer_token).ok_or_else(|| WakeRejection::TokenInvalid.into())
}

/// What the token of a lease on work that is pulled says.
fn pull_claims(
    server: &Server,
    tenant: Option<&Tenant>,
    id: &str,
    headers: &HeaderMap,
) -> Result<Option<Claims>, Error> {
    let (claims, subscription) = token_claims(server, tenant, id, headers)?;
    check_pull(&subscription)?;
    Ok(claims)
}

/// What the token says, and the subscription that it is for. A token that says nothing is for one
/// of the caller's, if nobody needs a key; else its holder learns nothing, not even what there is.
fn token_claims(
    server: &Server,
    tenant: Option<&Tenant>,
    id: &str,
    headers: &HeaderMap,
) -> Result<(Option<Claims>, Subscription), Error> {
    let claims = server.engine.lease_claims(None, id, token(headers)?);
    let tenant = claims.as_ref().map(|claims| &claims.tenant).or(tenant);
    let subscription = find(server, tenant.ok_or(WakeRejection::TokenInvalid)?, id)?;
    Ok((claims, subscription))
}

/// What the token says, if it is one.
fn valid_claims(claims: Option<Claims>) -> Result<Claims, Error> {
    claims.ok_or_else(|| WakeRejection::TokenInvalid.into())
}

/// Why the holder of a token was turned away. One that holds its lease is not, however old the
/// token is; who does not, and comes late, is told that it is too late.
fn lease_error(server: &Server, expires_at: Millis, failure: WakeError) -> Error {
    let fenced = WakeError::from(WakeRejection::Consumer(Rejected::Fenced));
    if failure == fenced && expires_at <= server.engine.clock().wall() {
        return Error::TokenExpired;
    }
    failure.into()
}

fn check_pull(subscription: &Subscription) -> Result<(), Error> {
    match subscription.spec.target {
        Target::Pull(_) => Ok(()),
        Target::Webhook(_) => {
            let message = "only a subscription of the type \"pull-wake\" is claimed, acknowledged \
                         and released; this one calls its webhook";
            Err(FieldError::from(message).into())
        }
    }
}

fn parse_worker<'a>(fields: &Fields<'a>) -> Result<&'a str, FieldError> {
    let worker = fields.text("worker")?.ok_or("`worker` is missing; give the worker's name")?;
    if worker.is_empty() || worker.len() > WORKER_BYTES_MAX {
        return Err(format!("`worker` must be 1 to {WORKER_BYTES_MAX} bytes long").into());
    }
    Ok(worker)
}

/// The wake that is spoken for.
fn parse_wake(fields: &Fields<'_>) -> Result<(u64, ClaimedWake), FieldError> {
    let generation = fields.number("generation")?;
    let generation = generation.ok_or("`generation` is missing; send the one of the wake")?;
    let wake_id = parse_claimed_wake(fields)?;
    let wake_id = wake_id.ok_or("`wake_id` is missing; send the one of the wake")?;
    Ok((generation, wake_id))
}
