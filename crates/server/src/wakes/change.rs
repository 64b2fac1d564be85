//! `PATCH /{pattern}?subscription=NAME`: a subscription changes in place, and nothing of what its
//! consumers have done is lost.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::consumer::Dialect;
use reveille_core::key::Right;
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{Subscription, SubscriptionChange, Target};
use reveille_engine::wakes::{WakeError, WakeRejection};
use serde_json::{Map, Value};

use super::error::Error;
use super::subscribe::{parse_retry, parse_sync_done, parse_wake_if};
use super::subscribe::{parse_webhook, subscription_json};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::{FieldError, Fields};
use crate::http::inbound;
use crate::http::known::{check_fields, check_fields_of};
use crate::http::reply::{self, Reply};

/// What may be said of a subscription that there is.
const CHANGE_FIELDS: &[&str] = &[
    "webhook",
    "description",
    "min_interval",
    "max_delay",
    "wake_if",
    "sync_done",
    "retry",
    PAUSED,
    ROTATE_SECRET,
];
const PAUSED: &str = "paused";
const ROTATE_SECRET: &str = "rotate_secret";

/// What a subscription is made with and keeps.
const FIXED_FIELDS: [&str; 2] = ["pattern", "start"];

/// Two secrets sign for this long if nothing else is said,
const OVERLAP_MS_DEFAULT: u64 = 86_400_000;
/// and for this long at most.
const OVERLAP_DAYS_MAX: u64 = 30;

const ONLY_PAUSES: &str = "the key may pause and resume subscriptions, with `paused` alone in the \
                           body; to change more of them takes the role user or admin, and the \
                           permissions read and write";

pub(super) async fn change(
    server: &Server,
    caller: &Caller,
    name: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let body = inbound::read_object::<Error>(server, &caller.tenant, &parts.headers, body).await?;
    let is_operation = body.keys().all(|field| field == PAUSED);
    if !is_operation {
        caller.check(Right::Subscribe).map_err(|_| RequestError::Forbidden(ONLY_PAUSES))?;
    }
    if let Some(fixed) = FIXED_FIELDS.into_iter().find(|field| body.contains_key(*field)) {
        let message = format!(
            "`{fixed}` cannot change: other streams have other consumers; make another \
             subscription, and delete this one"
        );
        return Err(FieldError(message).into());
    }
    check_fields(&body, CHANGE_FIELDS)?;
    let known = server.engine.subscription(&caller.tenant, Dialect::Webhooks, name)?;
    let known = known.ok_or(WakeError::from(WakeRejection::NotFound))?;
    // Who may not read the server's own streams does not choose who is told of them either.
    if let Some(pattern) = known.spec.pattern.as_ref().filter(|_| !is_operation)
        && pattern.as_str().starts_with("/_")
    {
        caller.check_reading(Pattern::as_str(pattern))?;
    }
    let mut change = parse_change(&body)?;
    change.by = caller.key_id();
    check_webhook(server, &known, &change)?;
    let overlap_ms = parse_rotation(&body)?;
    let engine = &caller.engine(server);
    let (changed, secret) =
        engine.change_subscription(&caller.tenant, name, change, overlap_ms).await?;
    let mut answer = subscription_json(&changed);
    if let (Some(object), Some(secret)) = (answer.as_object_mut(), secret) {
        object.insert("webhook_secret".into(), secret.into());
    }
    Ok(reply::json(StatusCode::OK, &answer))
}

/// Another address must be one that may be called; the rules may have changed since it was taken.
fn check_webhook(
    server: &Server,
    known: &Subscription,
    change: &SubscriptionChange,
) -> Result<(), Error> {
    match (&change.webhook, &known.spec.target) {
        (Some(url), Target::Webhook(before)) if url != before => {
            Ok(server.engine.check_destination(url)?)
        }
        _ => Ok(()),
    }
}

/// What is to be another. A field that is not there stays; `null` is as good as none.
fn parse_change(body: &Map<String, Value>) -> Result<SubscriptionChange, FieldError> {
    let fields = Fields(body);
    let is_given = |name: &str| body.contains_key(name);
    let mut change = SubscriptionChange::default();
    if is_given("webhook") {
        change.webhook = Some(parse_webhook(&fields)?.into());
    }
    if is_given("description") {
        change.description = Some(fields.text("description")?.map(Into::into));
    }
    if is_given("min_interval") {
        change.min_interval_ms = Some(fields.period_ms("min_interval")?.unwrap_or(0));
    }
    if is_given("max_delay") {
        change.max_delay_ms = Some(fields.period_ms("max_delay")?);
    }
    if is_given("wake_if") {
        change.wake_if = Some(parse_wake_if(&fields)?.map(Into::into));
    }
    if is_given("sync_done") {
        change.sync_done = Some(parse_sync_done(&fields)?);
    }
    if is_given("retry") {
        change.retry = Some(parse_retry(&fields)?);
    }
    change.paused = match body.get(PAUSED) {
        None => None,
        Some(Value::Bool(paused)) => Some(*paused),
        Some(_) => return Err(format!("`{PAUSED}` must be true or false").into()),
    };
    Ok(change)
}

/// How long the secret goes on signing that a new one takes over from, if one is to.
fn parse_rotation(body: &Map<String, Value>) -> Result<Option<u64>, FieldError> {
    let Some(rotation) = body.get(ROTATE_SECRET) else { return Ok(None) };
    let message = || format!("`{ROTATE_SECRET}` must be an object like {{\"overlap\": \"24h\"}}");
    let rotation = rotation.as_object().ok_or_else(message)?;
    check_fields_of(ROTATE_SECRET, rotation, &["overlap"])?;
    let overlap_ms = Fields(rotation).period_ms("overlap")?.unwrap_or(OVERLAP_MS_DEFAULT);
    if overlap_ms > OVERLAP_DAYS_MAX * 86_400_000 {
        let message = format!("`{ROTATE_SECRET}`: `overlap` is {OVERLAP_DAYS_MAX}d at most");
        return Err(message.into());
    }
    Ok(Some(overlap_ms))
}
