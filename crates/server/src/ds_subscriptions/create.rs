//! Making a subscription, and ending it.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::consumer::Dialect;
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{
    Coalescing, LEASE_MS_DEFAULT, LEASE_MS_MAX, LEASE_MS_MIN, RetrySettings, SubscriptionSpec,
    Target,
};
use reveille_core::{ReadFrom, StreamPath};
use serde_json::Value;

use super::error::Error;
use super::{absolute_path, base_url, parse_stream, read_body, show};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::{self, FieldError, Fields};
use crate::http::reply::{self, Reply};
use crate::http::subscription::{callback_base, check_name};

/// What subscriptions on patterns can be told, and these cannot.
const FOREIGN_FIELDS: [&str; 4] = ["min_interval", "max_delay", "wake_if", "sync_done"];

/// `PUT subscriptions/:id`
pub(super) async fn create(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    check_name(id)?;
    let (parts, body) = request.into_parts();
    let body = read_body(server, &caller.tenant, &parts, body).await?;
    let body = fields::parse_object(&body.bytes)?;
    let mut spec = parse_spec(id, &Fields(&body))?;
    spec.base_url = match spec.target {
        Target::Webhook(_) => callback_base(server.config.public_url.as_deref(), &parts)?,
        // Nobody calls back, so a host is not needed.
        Target::Pull(_) => None,
    };
    spec.check().map_err(|error| FieldError(error.to_string()))?;
    // Whether the id is taken comes before whether the address is safe: asking twice alike must
    // not fail because the rules have changed since.
    let known = server.engine.subscription(&caller.tenant, Dialect::Leases, id)?;
    if known.is_none()
        && let Target::Webhook(url) = &spec.target
    {
        server.engine.check_destination(url)?;
    }
    let (subscription, _, is_new) =
        server.engine.subscribe(&caller.tenant, spec, caller.key_id()).await?;
    // Not before: a page that waits for the disk would keep others out.
    let mut page = show::begin(server, caller).await?;
    let base_url = base_url(server, &parts);
    let fields = show::fill(server, &mut page, &subscription, &base_url).await?;
    Ok(page.finish(if is_new { StatusCode::CREATED } else { StatusCode::OK }, &fields))
}

/// `DELETE subscriptions/:id`
pub(super) async fn delete(server: &Server, caller: &Caller, id: &str) -> Result<Reply, Error> {
    caller.engine(server).unsubscribe(&caller.tenant, Dialect::Leases, id).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

fn parse_spec(id: &str, fields: &Fields<'_>) -> Result<SubscriptionSpec, FieldError> {
    // Whoever asks for them counts on them: unknown fields are ignored, these are refused.
    if let Some(name) = FOREIGN_FIELDS.into_iter().find(|name| fields.get(name).is_some()) {
        return Err(format!(
            "`{name}` is for subscriptions on patterns (PUT /{{pattern}}?subscription=NAME); leave \
             it out here"
        )
        .into());
    }
    let target = parse_target(fields)?;
    let pattern = fields.text("pattern")?.map(parse_pattern).transpose()?;
    let streams = parse_streams(fields)?;
    if pattern.is_none() && streams.is_empty() {
        return Err("`pattern` or `streams` must say which streams the subscription is for".into());
    }
    Ok(SubscriptionSpec {
        dialect: Dialect::Leases,
        name: id.into(),
        pattern,
        streams,
        target,
        description: fields.text("description")?.map(Into::into),
        lease_ms: Some(parse_lease_ms(fields)?),
        coalescing: Coalescing::default(),
        retry: RetrySettings::default(),
        start: ReadFrom::Now,
        base_url: None,
    })
}

fn parse_target(fields: &Fields<'_>) -> Result<Target, FieldError> {
    let (webhook, wake_stream) = (fields.get("webhook"), fields.text("wake_stream")?);
    match (fields.text("type")?, webhook, wake_stream) {
        (Some("webhook"), Some(webhook), None) => {
            let url = webhook.get("url").and_then(Value::as_str).filter(|url| !url.is_empty());
            let url = url.ok_or("`webhook` must be an object with `url`, a string")?;
            Ok(Target::Webhook(url.into()))
        }
        (Some("webhook"), None, _) => {
            Err("`webhook` is missing; give an object with the `url` that is to be called".into())
        }
        (Some("webhook"), Some(_), Some(_)) => {
            Err("`wake_stream` is for subscriptions of the type \"pull-wake\"".into())
        }
        (Some("pull-wake"), None, Some(path)) => {
            Ok(Target::Pull(parse_stream("wake_stream", path)?))
        }
        (Some("pull-wake"), None, None) => {
            Err("`wake_stream` is missing; name the stream that workers watch".into())
        }
        (Some("pull-wake"), Some(_), _) => {
            Err("`webhook` is for subscriptions of the type \"webhook\"".into())
        }
        _ => Err("`type` must be \"webhook\" or \"pull-wake\"".into()),
    }
}

fn parse_pattern(text: &str) -> Result<Pattern, FieldError> {
    let pattern = Pattern::parse(&absolute_path("pattern", text)?);
    Ok(pattern.map_err(|error| format!("`pattern`: {error}"))?)
}

/// The streams of the field of that name. In which order, and how often each, says nothing.
pub(super) fn parse_streams(fields: &Fields<'_>) -> Result<Vec<StreamPath>, FieldError> {
    let parse = |item: &Value| {
        let text = item.as_str().ok_or("`streams` must hold strings")?;
        parse_stream("streams", text)
    };
    let mut streams =
        fields.list("streams")?.iter().map(parse).collect::<Result<Vec<_>, FieldError>>()?;
    streams.sort();
    streams.dedup();
    Ok(streams)
}

fn parse_lease_ms(fields: &Fields<'_>) -> Result<u64, FieldError> {
    let lease_ms = fields.number("lease_ttl_ms")?.unwrap_or(LEASE_MS_DEFAULT);
    if (LEASE_MS_MIN..=LEASE_MS_MAX).contains(&lease_ms) {
        Ok(lease_ms)
    } else {
        Err(format!("`lease_ttl_ms` must be from {LEASE_MS_MIN} to {LEASE_MS_MAX}").into())
    }
}
