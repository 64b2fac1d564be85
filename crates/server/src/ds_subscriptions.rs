//! The `__ds` face: the Durable Streams protocol's own subscriptions (its sections 6 and 7).
//!
//! ```text
//! PUT, GET, DELETE  /v1/stream/__ds/subscriptions/:id
//! POST              /v1/stream/__ds/subscriptions/:id/streams
//! DELETE            /v1/stream/__ds/subscriptions/:id/streams/:path
//! POST              /v1/stream/__ds/subscriptions/:id/{callback,claim,ack,release}
//! GET               /v1/stream/__ds/jwks.json
//! ```
//!
//! In its bodies streams are named relative to `/v1/stream/`; everywhere else in this program by
//! the whole path.

mod create;
mod error;
mod leases;
mod payload;
mod show;
mod signing_keys;
mod streams;

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::consumer::Dialect;
use reveille_core::subscription::{STREAM_ROOT, Subscription, SubscriptionSpecError, is_name};
use reveille_core::{StreamPath, Tenant};
use reveille_engine::wakes::WakeRejection;

pub(crate) use payload::encode_wake;
pub(crate) use signing_keys::answer as signing_keys;

use self::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::FieldError;
use crate::http::inbound;
use crate::http::query;
use crate::http::reply::{self, Reply};

/// Where this face is: no stream has such a path.
const CONTROL: &str = "/v1/stream/__ds";
/// A body larger than this asks for nothing that can be had.
const BODY_BYTES_MAX: usize = 4 << 20;

/// Whether the path is one of this face.
fn is_control(path: &str) -> bool {
    path.strip_prefix(CONTROL).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request of somebody with a key.
pub(crate) async fn answer(server: &Server, caller: &Caller, request: Request<Incoming>) -> Reply {
    let answer = route(server, caller, request).await;
    answer.unwrap_or_else(|error| error.refusal().reply())
}

async fn route(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let (id, part) = parse_path(&path)?;
    match (part, method) {
        (Part::Subscription, Method::PUT) => create::create(server, caller, &id, request).await,
        (Part::Subscription, Method::GET | Method::HEAD) => {
            show::show(server, caller, &id, request).await
        }
        (Part::Subscription, Method::DELETE) => create::delete(server, caller, &id).await,
        (Part::Subscription, method) => {
            Err(RequestError::Method { method, allowed: "GET, HEAD, PUT, DELETE, OPTIONS" }.into())
        }
        (Part::Stream(path), Method::DELETE) => streams::remove(server, caller, &id, path).await,
        (Part::Stream(_), method) => {
            Err(RequestError::Method { method, allowed: "DELETE, OPTIONS" }.into())
        }
        (Part::Streams, Method::POST) => streams::add(server, caller, &id, request).await,
        (Part::Claim, Method::POST) => leases::claim(server, caller, &id, request).await,
        (_, method) => Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into()),
    }
}

/// Answers those who show a token instead of a key. Whose the subscription is says the token;
/// there is a caller only where nobody needs a key.
pub(crate) async fn answer_token(
    server: &Server,
    caller: Option<&Caller>,
    request: Request<Incoming>,
) -> Reply {
    let answer = route_token(server, caller, request).await;
    answer.unwrap_or_else(|error| error.refusal().reply())
}

async fn route_token(
    server: &Server,
    caller: Option<&Caller>,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let (id, part) = parse_path(&path)?;
    let tenant = caller.map(|caller| &caller.tenant);
    match (part, method) {
        (Part::Callback, Method::POST) => leases::callback(server, tenant, &id, request).await,
        (Part::Ack, Method::POST) => leases::ack(server, tenant, &id, request).await,
        (Part::Release, Method::POST) => leases::release(server, tenant, &id, request).await,
        (_, method) => Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into()),
    }
}

/// The id of the subscription that a path is about, and which part of it.
fn parse_path(path: &str) -> Result<(String, Part<'_>), Error> {
    let resource = Resource::parse(path).ok_or(RequestError::ReservedPath)?;
    let Resource { id, part } = resource;
    let id = query::decode_path(id);
    if !is_name(&id) {
        return Err(FieldError(SubscriptionSpecError::Name.to_string()).into());
    }
    Ok((id, part))
}

/// Something that can be asked for; the id is as it stands in the URL.
#[derive(Debug, PartialEq, Eq)]
struct Resource<'a> {
    id: &'a str,
    part: Part<'a>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    /// The subscription itself.
    Subscription,
    Streams,
    /// As it stands in the URL.
    Stream(&'a str),
    Callback,
    Claim,
    Ack,
    Release,
}

impl Resource<'_> {
    fn parse(path: &str) -> Option<Resource<'_>> {
        let rest = path.strip_prefix(CONTROL)?.strip_prefix("/subscriptions/")?;
        let (id, part) = match rest.split_once('/') {
            None => (rest, Part::Subscription),
            Some((id, part)) => (id, Part::parse(part)?),
        };
        (!id.is_empty()).then_some(Resource { id, part })
    }
}

impl Part<'_> {
    fn parse(text: &str) -> Option<Part<'_>> {
        match text {
            "streams" => Some(Part::Streams),
            "callback" => Some(Part::Callback),
            "claim" => Some(Part::Claim),
            "ack" => Some(Part::Ack),
            "release" => Some(Part::Release),
            _ => {
                let path = text.strip_prefix("streams/")?;
                (!path.is_empty()).then_some(Part::Stream(path))
            }
        }
    }
}

/// The subscription of this id.
fn find(server: &Server, tenant: &Tenant, id: &str) -> Result<Subscription, Error> {
    let found = server.engine.subscription(tenant, Dialect::Leases, id)?;
    found.ok_or_else(|| WakeRejection::NotFound.into())
}

/// Reads the body of a request to this face.
async fn read_body(
    server: &Server,
    tenant: &Tenant,
    parts: &http::request::Parts,
    body: Incoming,
) -> Result<inbound::InboundBody, RequestError> {
    let max = BODY_BYTES_MAX.min(server.config.max_body_bytes);
    inbound::read(&server.engine, tenant, &parts.headers, body, max).await
}

/// The base of URLs in answers.
fn base_url(server: &Server, parts: &http::request::Parts) -> String {
    let base = server.config.public_url.as_deref().map(str::to_owned);
    let base = base.or_else(|| reply::base_url(parts)).unwrap_or_default();
    base.trim_end_matches('/').to_owned()
}

/// The stream that a body or a URL names in its configuration; a slash before it is forgiven.
fn parse_stream(field: &str, text: &str) -> Result<StreamPath, FieldError> {
    let absolute = absolute_path(field, text)?;
    Ok(StreamPath::parse(&absolute).map_err(|error| format!("`{field}`: {error}"))?)
}

/// A relative path or pattern as a whole one.
fn absolute_path(field: &str, text: &str) -> Result<String, FieldError> {
    let text = text.trim_start_matches('/');
    if text.is_empty() {
        return Err(
            format!("`{field}` must not be empty; paths are relative to {STREAM_ROOT}").into()
        );
    }
    let absolute = format!("{STREAM_ROOT}{text}");
    if is_control(&absolute) {
        return Err(format!("`{field}`: {CONTROL} is reserved and holds no streams").into());
    }
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_told_apart_and_all_others_are_nothing() {
        let of = |rest: &'static str| {
            let path: &'static str = format!("{CONTROL}{rest}").leak();
            Resource::parse(path)
        };
        let subscription = |id, part| Some(Resource { id, part });
        assert_eq!(of("/subscriptions/a"), subscription("a", Part::Subscription));
        assert_eq!(of("/subscriptions/a%20/streams"), subscription("a%20", Part::Streams));
        assert_eq!(of("/subscriptions/a/streams/b/c"), subscription("a", Part::Stream("b/c")));
        assert_eq!(of("/subscriptions/a/claim"), subscription("a", Part::Claim));
        let nothing = [
            "",
            "/",
            "/jwks.json",
            "/subscriptions",
            "/subscriptions/",
            "/subscriptions//claim",
            "/subscriptions/a/",
            "/subscriptions/a/streams/",
            "/subscriptions/a/claims",
            "/subscriptions/a/claim/b",
        ];
        for rest in nothing {
            assert_eq!(of(rest), None, "{rest}");
        }
    }

    #[test]
    fn relative_paths_become_whole_ones() {
        let parse = |text| parse_stream("streams", text).map(|path| path.as_str().to_owned());
        assert_eq!(parse("events/a"), Ok("/v1/stream/events/a".to_owned()));
        assert_eq!(parse("/events/a/"), Ok("/v1/stream/events/a/".to_owned()));
        for bad in ["", "/", "__ds", "__ds/x", "a b", "a?b"] {
            assert!(parse(bad).is_err_and(|error| error.0.starts_with("`streams`")), "{bad}");
        }
    }
}
