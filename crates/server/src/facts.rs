//! The facts face: what is said of entities, who belongs to gardens, and subscriptions that are
//! authorised again at every delivery.
//!
//! | route                                                     | module            |
//! |-----------------------------------------------------------|-------------------|
//! | `POST\|GET /v1/facts`, `GET /v1/facts/{id}`               | [`fact`]          |
//! | `POST /v1/cards/refresh`, `GET /v1/cards`                 | [`card`]          |
//! | `POST\|GET /v1/gardens`, `GET\|DELETE /v1/gardens/{slug}` | [`garden`]        |
//! | `GET\|POST …/members`                                     | [`member`]        |
//! | `PUT\|DELETE …/members/{entity_uri}`                      | [`member`]        |
//! | `POST\|GET /v1/federation/capability-tokens`              | [`token`]         |
//! | `POST /v1/federation/capability-tokens/{id}/revoke`       | [`token`]         |
//! | `POST\|GET /v1/subscriptions`                             | [`subscription`]  |
//! | `GET\|DELETE /v1/subscriptions/{id}`                      | [`subscription`]  |
//! | `GET /v1/subscriptions/{id}/events`                       | [`replay`]        |
//! | `GET /v1/subscriptions/{id}/explain`                      | [`subscription`]  |
//!
//! What is a subscription here is a hook in the engine: there, subscriptions are those on streams.

mod body;
mod card;
mod encoder;
mod error;
mod fact;
mod garden;
mod member;
mod replay;
mod subscription;
mod token;

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::fact::principal::Principal;
use reveille_core::fact::subscription::REPLAY_WINDOW_S_DEFAULT;
use reveille_core::fact::wake::WakeTemplate;
use reveille_engine::facts::FactCaller;

pub(crate) use self::encoder::FactEncoder;

use self::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::query::{Query, decode_path};
use crate::http::reply::Reply;

/// What the operator lets subscriptions to facts do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactSettings {
    /// Where agents are woken; without it, nobody is.
    pub wake_template: Option<WakeTemplate>,
    /// How long subscribers may have events once more.
    pub replay_window_s: u64,
}

impl Default for FactSettings {
    fn default() -> FactSettings {
        FactSettings { wake_template: None, replay_window_s: REPLAY_WINDOW_S_DEFAULT }
    }
}

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Operation {
    Facts,
    Fact(String),
    RefreshCard,
    Card,
    Gardens,
    Garden(String),
    Members(String),
    Member(String, String),
    Tokens,
    RevokeToken(String),
    Subscriptions,
    Subscription(String),
    Events(String),
    Explain(String),
}

/// Refuses, in the shape of this face, what was wrong before it was reached.
pub(crate) fn refuse(error: RequestError) -> Reply {
    Error::from(error).reply()
}

/// Answers a request.
pub(crate) async fn answer(server: &Server, caller: &Caller, request: Request<Incoming>) -> Reply {
    route(server, caller, request).await.unwrap_or_else(Error::reply)
}

/// Who asks, as rules of access know them.
fn fact_caller(caller: &Caller) -> FactCaller {
    let key = caller.as_key();
    FactCaller {
        tenant: caller.tenant.clone(),
        principal: key.map_or_else(Principal::local, |key| Principal::of_key(&key.id, &key.access)),
        key: caller.key_id(),
    }
}

async fn route(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let path = request.uri().path().to_owned();
    let operation = parse_operation(&path).ok_or(RequestError::ReservedPath)?;
    let method = request.method().clone();
    let query = Query::parse(request.uri().query());
    query.check_known(parameters(&operation, &method))?;
    match (&operation, &method) {
        (_, &Method::GET | &Method::HEAD) if allowed(&operation).starts_with("GET") => {
            look_up(server, caller, &operation, &query).await
        }
        (Operation::Facts, &Method::POST) => fact::assert(server, caller, request).await,
        (Operation::RefreshCard, &Method::POST) => card::refresh(server, caller, request).await,
        (Operation::Gardens, &Method::POST) => garden::create(server, caller, request).await,
        (Operation::Garden(slug), &Method::DELETE) => garden::delete(server, caller, slug).await,
        (Operation::Members(slug), &Method::POST) => {
            member::add(server, caller, slug, request).await
        }
        (Operation::Member(slug, entity), &Method::PUT) => {
            member::change(server, caller, (slug, entity), request).await
        }
        (Operation::Member(slug, entity), &Method::DELETE) => {
            member::remove(server, caller, slug, entity).await
        }
        (Operation::Tokens, &Method::POST) => token::issue(server, caller, request).await,
        (Operation::RevokeToken(id), &Method::POST) => {
            token::revoke(server, caller, id, request).await
        }
        (Operation::Subscriptions, &Method::POST) => {
            subscription::create(server, caller, request).await
        }
        (Operation::Subscription(id), &Method::DELETE) => {
            subscription::delete(server, caller, id).await
        }
        (operation, _) => Err(RequestError::Method { method, allowed: allowed(operation) }.into()),
    }
}

/// Answers about what is only looked at.
async fn look_up(
    server: &Server,
    caller: &Caller,
    operation: &Operation,
    query: &Query,
) -> Result<Reply, Error> {
    match operation {
        Operation::Facts => fact::query(server, caller, query).await,
        Operation::Fact(id) => fact::one(server, caller, id),
        Operation::Card => card::show(server, caller, query),
        Operation::Gardens => garden::list(server, caller, query).await,
        Operation::Garden(slug) => garden::show(server, caller, slug),
        Operation::Members(slug) => member::list(server, caller, slug, query).await,
        Operation::Tokens => token::list(server, caller, query).await,
        Operation::Subscriptions => subscription::list(server, caller, query).await,
        Operation::Subscription(id) => subscription::show(server, caller, id),
        Operation::Explain(id) => subscription::explain(server, caller, id),
        Operation::Events(id) => replay::answer(server, caller, id, query).await,
        Operation::RefreshCard | Operation::Member(..) | Operation::RevokeToken(_) => {
            Err(RequestError::ReservedPath.into())
        }
    }
}

fn parse_operation(path: &str) -> Option<Operation> {
    let mut parts = path.strip_prefix("/v1/")?.split('/');
    let parts = (parts.next()?, parts.next(), parts.next(), parts.next(), parts.next());
    // Names may have any character of a URL, escaped.
    let named = |text: &str| Some(decode_path(text)).filter(|text| !text.is_empty());
    match parts {
        ("facts", None, ..) => Some(Operation::Facts),
        ("facts", Some(id), None, ..) => Some(Operation::Fact(named(id)?)),
        ("cards", None, ..) => Some(Operation::Card),
        ("cards", Some("refresh"), None, ..) => Some(Operation::RefreshCard),
        ("gardens", None, ..) => Some(Operation::Gardens),
        ("gardens", Some(slug), None, ..) => Some(Operation::Garden(named(slug)?)),
        ("gardens", Some(slug), Some("members"), None, _) => Some(Operation::Members(named(slug)?)),
        ("gardens", Some(slug), Some("members"), Some(entity), None) => {
            Some(Operation::Member(named(slug)?, named(entity)?))
        }
        ("federation", Some("capability-tokens"), None, ..) => Some(Operation::Tokens),
        ("federation", Some("capability-tokens"), Some(id), Some("revoke"), None) => {
            Some(Operation::RevokeToken(named(id)?))
        }
        ("subscriptions", None, ..) => Some(Operation::Subscriptions),
        ("subscriptions", Some(id), None, ..) => Some(Operation::Subscription(named(id)?)),
        ("subscriptions", Some(id), Some("events"), None, _) => Some(Operation::Events(named(id)?)),
        ("subscriptions", Some(id), Some("explain"), None, _) => {
            Some(Operation::Explain(named(id)?))
        }
        _ => None,
    }
}

/// What can be done there, as the header `Allow` says it.
fn allowed(operation: &Operation) -> &'static str {
    match operation {
        Operation::Facts
        | Operation::Gardens
        | Operation::Members(_)
        | Operation::Tokens
        | Operation::Subscriptions => "GET, HEAD, POST, OPTIONS",
        Operation::Garden(_) | Operation::Subscription(_) => "GET, HEAD, DELETE, OPTIONS",
        Operation::Fact(_) | Operation::Card | Operation::Events(_) | Operation::Explain(_) => {
            "GET, HEAD, OPTIONS"
        }
        Operation::Member(..) => "PUT, DELETE, OPTIONS",
        Operation::RefreshCard | Operation::RevokeToken(_) => "POST, OPTIONS",
    }
}

/// What the query of a request may say.
fn parameters(operation: &Operation, method: &Method) -> &'static [&'static str] {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return &[];
    }
    match operation {
        Operation::Facts => {
            &["entity", "relation", "scope", "garden_id", "live", "limit", "cursor"]
        }
        Operation::Card => &["entity", "scope"],
        Operation::Members(_)
        | Operation::Tokens
        | Operation::Subscriptions
        | Operation::Events(_) => &["limit", "after"],
        Operation::Gardens => &["limit"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_told_by_the_path() {
        let check = |path, expected| assert_eq!(parse_operation(path), expected, "{path}");
        let own = str::to_owned;
        check("/v1/facts", Some(Operation::Facts));
        check("/v1/facts/a%20b", Some(Operation::Fact(own("a b"))));
        check("/v1/cards/refresh", Some(Operation::RefreshCard));
        check("/v1/gardens/atlas/members", Some(Operation::Members(own("atlas"))));
        let entity = own("stigmem://co/user/a");
        check(
            "/v1/gardens/atlas/members/stigmem%3A%2F%2Fco%2Fuser%2Fa",
            Some(Operation::Member(own("atlas"), entity)),
        );
        check("/v1/federation/capability-tokens", Some(Operation::Tokens));
        check("/v1/federation/capability-tokens/t/revoke", Some(Operation::RevokeToken(own("t"))));
        check("/v1/subscriptions/s/events", Some(Operation::Events(own("s"))));
        for path in [
            "/v1/facts/",
            "/v1/facts/a/b",
            "/v1/cards/x",
            "/v1/gardens/a/members/b/c",
            "/v1/gardens//members",
            "/v1/federation",
            "/v1/federation/capability-tokens/t",
            "/v1/subscriptions/",
            "/v1/subscriptions/s/x",
        ] {
            check(path, None);
        }
    }
}
