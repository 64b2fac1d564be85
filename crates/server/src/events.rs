//! The events face: events come in, subscriptions on their types get a delivery of each.
//!
//! | route                                                   | module         |
//! |---------------------------------------------------------|----------------|
//! | `POST /ingest`, `POST /e`                               | [`ingest`]     |
//! | `POST /subscriptions/subscribe`                         | [`subscribe`]  |
//! | `POST /subscriptions/unsubscribe`, `…/reactivate`       | [`change`]     |
//! | `POST /subscriptions/pause`, `…/resume`                 | [`change`]     |
//! | `GET /subscriptions/list`, `…/match`, `…/status/{id}`   | [`show`]       |
//! | `GET\|PUT\|DELETE /subscriptions/{id}`                  | [`show`], [`change`] |
//! | `POST /subscriptions/{id}/rotate-secret`                | [`change`]     |
//! | `GET /subscriptions/{id}/deliveries`, `…/dead-letters`  | [`deliveries`] |
//! | `POST /subscriptions/{id}/dead-letters/{id}/retry`      | [`deliveries`] |
//! | `POST /subscriptions/{id}/dead-letters/retry`           | [`deliveries`] |
//! | `GET /subscriptions/deliveries/{id}/logs`               | [`deliveries`] |
//! | `GET /subscriptions/{id}/explain`                       | [`explain`]    |
//!
//! What is a subscription here is a hook in the engine: there, subscriptions are those on streams.

mod body;
mod change;
mod deliveries;
mod error;
mod explain;
mod ingest;
mod show;
mod subscribe;
mod workers;

use std::sync::Arc;

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_engine::Engine;

pub(crate) use workers::EventEncoder;
pub use workers::Workers;

use self::error::Error;
use crate::Server;
use crate::http::auth::{Caller, Origin};
use crate::http::error::RequestError;
use crate::http::query::Query;
use crate::http::reply::Reply;

/// Where subscriptions are.
const SUBSCRIPTIONS: &str = "/subscriptions/";

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation<'a> {
    Ingest,
    Subscribe,
    Unsubscribe,
    Reactivate,
    Pause,
    Resume,
    List,
    Match,
    Status(&'a str),
    One(&'a str),
    Deliveries(&'a str),
    DeadLetters(&'a str),
    Retry(&'a str, &'a str),
    RetryMany(&'a str),
    Logs(&'a str),
    Explain(&'a str),
    RotateSecret(&'a str),
}

/// Whose events and subscriptions a request is about.
#[derive(Debug, Clone)]
struct Scope {
    /// Where events go and subscriptions are made.
    tenant: Tenant,
    /// Whether the subscriptions of all tenants are within reach.
    is_everywhere: bool,
    /// The key by which subscriptions are made.
    key_id: Option<Arc<str>>,
    /// Where whoever changes them is.
    origin: Origin,
}

impl Scope {
    fn of(caller: &Caller) -> Scope {
        let (tenant, is_everywhere) = (caller.tenant.clone(), caller.is_everywhere());
        Scope { tenant, is_everywhere, key_id: caller.key_id(), origin: caller.origin().clone() }
    }

    /// The engine, on behalf of whoever asks.
    fn engine(&self, server: &Server) -> Engine {
        server.engine.acting_as(self.origin.actor(self.key_id.clone()))
    }

    /// What answers call it: nothing where there are no namespaces.
    fn name(&self) -> Option<&str> {
        namespace_of(&self.tenant)
    }

    /// Whose subscriptions are within reach; `None` for everybody's.
    fn reach(&self) -> Option<&Tenant> {
        (!self.is_everywhere).then_some(&self.tenant)
    }
}

/// The namespace of something that belongs to a tenant; the tenant `default` has none.
fn namespace_of(tenant: &Tenant) -> Option<&str> {
    Some(tenant.as_str()).filter(|_| *tenant != Tenant::default_tenant())
}

/// Refuses, in the shape of this face, what was wrong before it was reached.
pub(crate) fn refuse(error: RequestError) -> Reply {
    Error::from(error).reply()
}

/// Answers a request.
pub(crate) async fn answer(server: &Server, caller: &Caller, request: Request<Incoming>) -> Reply {
    let scope = Scope::of(caller);
    route(server, &scope, request).await.unwrap_or_else(Error::reply)
}

async fn route(server: &Server, scope: &Scope, request: Request<Incoming>) -> Result<Reply, Error> {
    let path = request.uri().path().to_owned();
    let operation = parse_operation(&path).ok_or_else(|| unknown_path(&path))?;
    let method = request.method().clone();
    let query = request.uri().query().map(str::to_owned);
    let query = query.as_deref();
    Query::parse(query).check_known(parameters(operation))?;
    match (operation, &method) {
        (Operation::Ingest, &Method::POST) => ingest::answer(server, scope, request).await,
        (Operation::Subscribe, &Method::POST) => subscribe::answer(server, scope, request).await,
        (Operation::Unsubscribe, &Method::POST) => {
            change::activate(server, scope, false, request).await
        }
        (Operation::Reactivate, &Method::POST) => {
            change::activate(server, scope, true, request).await
        }
        (Operation::Pause, &Method::POST) => change::pause(server, scope, true, request).await,
        (Operation::Resume, &Method::POST) => change::pause(server, scope, false, request).await,
        (Operation::One(id), &Method::PUT) => change::edit(server, scope, id, request).await,
        (Operation::RotateSecret(id), &Method::POST) => {
            change::rotate_secret(server, scope, id, request).await
        }
        (Operation::One(id), &Method::DELETE) => change::delete(server, scope, id).await,
        (Operation::RetryMany(id), &Method::POST) => {
            deliveries::retry_many(server, scope, id, request).await
        }
        (Operation::Retry(id, letter), &Method::POST) => {
            deliveries::retry(server, scope, id, letter).await
        }
        (operation, &Method::GET | &Method::HEAD)
            if allowed_methods(operation).starts_with("GET") =>
        {
            look_up(server, scope, operation, query).await
        }
        (operation, _) => {
            Err(RequestError::Method { method, allowed: allowed_methods(operation) }.into())
        }
    }
}

/// Answers about what is only looked at.
async fn look_up(
    server: &Server,
    scope: &Scope,
    operation: Operation<'_>,
    query: Option<&str>,
) -> Result<Reply, Error> {
    match operation {
        Operation::List => show::list(server, scope, query).await,
        Operation::Match => show::matching(server, scope, query).await,
        Operation::Status(id) => show::status(server, scope, id),
        Operation::Deliveries(id) => deliveries::list(server, scope, id, query).await,
        Operation::DeadLetters(id) => deliveries::dead_letters(server, scope, id, query).await,
        Operation::Logs(id) => deliveries::logs(server, scope, id).await,
        Operation::Explain(id) => explain::answer(server, scope, id, query).await,
        Operation::One(id) => show::one(server, scope, id),
        Operation::Ingest
        | Operation::Subscribe
        | Operation::Unsubscribe
        | Operation::Reactivate
        | Operation::Pause
        | Operation::Resume
        | Operation::RotateSecret(_)
        | Operation::RetryMany(_)
        | Operation::Retry(..) => unreachable!("these cannot be looked at"),
    }
}

fn parse_operation(path: &str) -> Option<Operation<'_>> {
    if matches!(path, "/ingest" | "/e") {
        return Some(Operation::Ingest);
    }
    let mut parts = path.strip_prefix(SUBSCRIPTIONS)?.split('/');
    let parts = (parts.next()?, parts.next(), parts.next(), parts.next(), parts.next());
    let is_named = |name: &str| !name.is_empty();
    match parts {
        ("subscribe", None, ..) => Some(Operation::Subscribe),
        ("unsubscribe", None, ..) => Some(Operation::Unsubscribe),
        ("reactivate", None, ..) => Some(Operation::Reactivate),
        ("pause", None, ..) => Some(Operation::Pause),
        ("resume", None, ..) => Some(Operation::Resume),
        ("list", None, ..) => Some(Operation::List),
        ("match", None, ..) => Some(Operation::Match),
        ("status", Some(id), None, ..) if is_named(id) => Some(Operation::Status(id)),
        ("deliveries", Some(id), Some("logs"), None, _) if is_named(id) => {
            Some(Operation::Logs(id))
        }
        // Ids have no small letters, so they are never taken for one of the words above.
        (id, None, ..) if is_id(id) => Some(Operation::One(id)),
        (id, Some("deliveries"), None, ..) if is_named(id) => Some(Operation::Deliveries(id)),
        (id, Some("explain"), None, ..) if is_named(id) => Some(Operation::Explain(id)),
        (id, Some("rotate-secret"), None, ..) if is_named(id) => Some(Operation::RotateSecret(id)),
        (id, Some("dead-letters"), None, ..) if is_named(id) => Some(Operation::DeadLetters(id)),
        (id, Some("dead-letters"), Some("retry"), None, _) if is_named(id) => {
            Some(Operation::RetryMany(id))
        }
        (id, Some("dead-letters"), Some(letter), Some("retry"), None) => {
            (is_named(id) && is_named(letter)).then_some(Operation::Retry(id, letter))
        }
        _ => None,
    }
}

fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    !text.is_empty() && text.bytes().all(plain)
}

/// What can be done there, as the header `Allow` says it.
fn allowed_methods(operation: Operation<'_>) -> &'static str {
    match operation {
        Operation::Ingest
        | Operation::Subscribe
        | Operation::Unsubscribe
        | Operation::Reactivate
        | Operation::Pause
        | Operation::Resume
        | Operation::RotateSecret(_)
        | Operation::RetryMany(_)
        | Operation::Retry(..) => "POST, OPTIONS",
        Operation::One(_) => "GET, HEAD, PUT, DELETE, OPTIONS",
        Operation::List
        | Operation::Match
        | Operation::Status(_)
        | Operation::Deliveries(_)
        | Operation::DeadLetters(_)
        | Operation::Logs(_)
        | Operation::Explain(_) => "GET, HEAD, OPTIONS",
    }
}

/// What the query of a request may say.
fn parameters(operation: Operation<'_>) -> &'static [&'static str] {
    match operation {
        Operation::List => &[
            "active",
            "paused",
            "failing",
            "workerId",
            "patternPrefix",
            "shard",
            "created_by",
            "limit",
            "offset",
            "after",
        ],
        Operation::Match => &["eventType", "limit", "after"],
        Operation::Deliveries(_) | Operation::DeadLetters(_) => &["limit", "after"],
        Operation::Explain(_) => &["eventId", "eventType"],
        _ => &[],
    }
}

fn unknown_path(path: &str) -> Error {
    if path.starts_with("/subscriptions") {
        Error::unknown_endpoint(path)
    } else {
        RequestError::ReservedPath.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_told_by_the_path() {
        let check = |path, expected| assert_eq!(parse_operation(path), expected, "{path}");
        check("/e", Some(Operation::Ingest));
        check("/ingest", Some(Operation::Ingest));
        check("/ingest/", None);
        check("/subscriptions", None);
        check("/subscriptions/", None);
        check("/subscriptions/list", Some(Operation::List));
        check("/subscriptions/list/", None);
        check("/subscriptions/lists", None);
        check("/subscriptions/01ABC", Some(Operation::One("01ABC")));
        check("/subscriptions/status/01ABC", Some(Operation::Status("01ABC")));
        check("/subscriptions/status/", None);
        check("/subscriptions/status", None);
        check("/subscriptions/01A/dead-letters", Some(Operation::DeadLetters("01A")));
        check("/subscriptions/01A/dead-letters/01B/retry", Some(Operation::Retry("01A", "01B")));
        check("/subscriptions/01A/dead-letters/01B", None);
        check("/subscriptions/01A/dead-letters/retry", Some(Operation::RetryMany("01A")));
        check("/subscriptions/01A/dead-letters//retry", None);
        check("/subscriptions/01A/dead-letters/01B/retry/x", None);
        check("/subscriptions/deliveries/01C/logs", Some(Operation::Logs("01C")));
        check("/subscriptions/01A/deliveries", Some(Operation::Deliveries("01A")));
    }
}
