//! The events face: events come in, subscriptions on their types get a delivery of each.
//!
//! | route                                                   | module         |
//! |---------------------------------------------------------|----------------|
//! | `POST /ingest`, `POST /e`                               | [`ingest`]     |
//! | `POST /subscriptions/subscribe`                         | [`subscribe`]  |
//! | `POST /subscriptions/unsubscribe`, `…/reactivate`       | [`change`]     |
//! | `GET /subscriptions/list`, `…/match`, `…/status/{id}`   | [`show`]       |
//! | `GET\|PUT\|DELETE /subscriptions/{id}`                  | [`show`], [`change`] |
//! | `GET /subscriptions/{id}/deliveries`, `…/dead-letters`  | [`deliveries`] |
//! | `POST /subscriptions/{id}/dead-letters/{id}/retry`      | [`deliveries`] |
//! | `GET /subscriptions/deliveries/{id}/logs`               | [`deliveries`] |
//! | `GET /subscriptions/{id}/explain`                       | [`explain`]    |
//!
//! What is a subscription here is a hook in the engine: there, subscriptions are those on streams.

mod body;
mod change;
mod deliveries;
mod explain;
mod ingest;
mod refusal;
mod show;
mod subscribe;
mod workers;

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::Tenant;

pub(crate) use deliveries::standing;
pub(crate) use refusal::{HOOK_EXISTS, NO_DEAD_LETTER, NO_EVENT};
pub use workers::Workers;
pub(crate) use workers::letter;

use crate::Server;
use crate::auth::Caller;
use crate::error::Error;
use crate::reply::Reply;
use refusal::Refusal;

/// Where subscriptions are.
const SUBSCRIPTIONS: &str = "/subscriptions/";

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked<'a> {
    Ingest,
    Subscribe,
    Unsubscribe,
    Reactivate,
    List,
    Match,
    Status(&'a str),
    One(&'a str),
    Deliveries(&'a str),
    DeadLetters(&'a str),
    Retry(&'a str, &'a str),
    Logs(&'a str),
    Explain(&'a str),
}

/// Whose events and subscriptions a request is about.
#[derive(Debug, Clone)]
struct Scope {
    /// Where events go and subscriptions are made.
    tenant: Tenant,
    /// Whether the subscriptions of all tenants are within reach.
    everywhere: bool,
}

impl Scope {
    fn of(caller: &Caller) -> Scope {
        Scope { tenant: caller.tenant.clone(), everywhere: caller.is_everywhere() }
    }

    /// What answers call it: nothing where there are no namespaces.
    fn name(&self) -> Option<&str> {
        namespace_of(&self.tenant)
    }

    /// Whose subscriptions are within reach; `None` for everybody's.
    fn reach(&self) -> Option<&Tenant> {
        (!self.everywhere).then_some(&self.tenant)
    }
}

/// The namespace of something that belongs to a tenant; the tenant `default` has none.
fn namespace_of(tenant: &Tenant) -> Option<&str> {
    Some(tenant.as_str()).filter(|_| *tenant != Tenant::default_tenant())
}

/// An error from before this face was reached, in its words.
pub(crate) fn refused(error: Error) -> Reply {
    Refusal::from(error).reply()
}

/// Answers a request.
pub(crate) async fn answer(server: &Server, caller: &Caller, request: Request<Incoming>) -> Reply {
    let scope = Scope::of(caller);
    match dispatch(server, &scope, request).await {
        Ok(reply) => reply,
        Err(refusal) => refusal.reply(),
    }
}

async fn dispatch(
    server: &Server,
    scope: &Scope,
    request: Request<Incoming>,
) -> Result<Reply, Refusal> {
    let path = request.uri().path().to_owned();
    let asked = asked(&path).ok_or_else(|| unknown(&path))?;
    let method = request.method().clone();
    let query = request.uri().query().map(str::to_owned);
    let query = query.as_deref();
    match (asked, &method) {
        (Asked::Ingest, &Method::POST) => ingest::answer(server, scope, request).await,
        (Asked::Subscribe, &Method::POST) => subscribe::answer(server, scope, request).await,
        (Asked::Unsubscribe, &Method::POST) => {
            change::activate(server, scope, false, request).await
        }
        (Asked::Reactivate, &Method::POST) => change::activate(server, scope, true, request).await,
        (Asked::One(id), &Method::PUT) => change::edit(server, scope, id, request).await,
        (Asked::One(id), &Method::DELETE) => change::delete(server, scope, id).await,
        (Asked::Retry(id, letter), &Method::POST) => {
            deliveries::retry(server, scope, id, letter).await
        }
        (asked, &Method::GET | &Method::HEAD) if allowed(asked).starts_with("GET") => {
            look(server, scope, asked, query)
        }
        (asked, _) => Err(Error::Method { method, allowed: allowed(asked) }.into()),
    }
}

/// Answers what only looks.
fn look(
    server: &Server,
    scope: &Scope,
    asked: Asked<'_>,
    query: Option<&str>,
) -> Result<Reply, Refusal> {
    match asked {
        Asked::List => show::list(server, scope, query),
        Asked::Match => show::matching(server, scope, query),
        Asked::Status(id) => show::status(server, scope, id),
        Asked::Deliveries(id) => deliveries::list(server, scope, id, query),
        Asked::DeadLetters(id) => deliveries::dead_letters(server, scope, id, query),
        Asked::Logs(id) => deliveries::logs(server, scope, id),
        Asked::Explain(id) => explain::answer(server, scope, id, query),
        Asked::One(id) => show::one(server, scope, id),
        Asked::Ingest
        | Asked::Subscribe
        | Asked::Unsubscribe
        | Asked::Reactivate
        | Asked::Retry(..) => unreachable!("these cannot be looked at"),
    }
}

fn asked(path: &str) -> Option<Asked<'_>> {
    if matches!(path, "/ingest" | "/e") {
        return Some(Asked::Ingest);
    }
    let mut parts = path.strip_prefix(SUBSCRIPTIONS)?.split('/');
    let parts = (parts.next()?, parts.next(), parts.next(), parts.next(), parts.next());
    let named = |name: &str| !name.is_empty();
    match parts {
        ("subscribe", None, ..) => Some(Asked::Subscribe),
        ("unsubscribe", None, ..) => Some(Asked::Unsubscribe),
        ("reactivate", None, ..) => Some(Asked::Reactivate),
        ("list", None, ..) => Some(Asked::List),
        ("match", None, ..) => Some(Asked::Match),
        ("status", Some(id), None, ..) if named(id) => Some(Asked::Status(id)),
        ("deliveries", Some(id), Some("logs"), None, _) if named(id) => Some(Asked::Logs(id)),
        // Ids have no small letters, so they are never taken for one of the words above.
        (id, None, ..) if is_id(id) => Some(Asked::One(id)),
        (id, Some("deliveries"), None, ..) if named(id) => Some(Asked::Deliveries(id)),
        (id, Some("explain"), None, ..) if named(id) => Some(Asked::Explain(id)),
        (id, Some("dead-letters"), None, ..) if named(id) => Some(Asked::DeadLetters(id)),
        (id, Some("dead-letters"), Some(letter), Some("retry"), None) => {
            (named(id) && named(letter)).then_some(Asked::Retry(id, letter))
        }
        _ => None,
    }
}

fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    !text.is_empty() && text.bytes().all(plain)
}

/// What can be done there.
fn allowed(asked: Asked<'_>) -> &'static str {
    match asked {
        Asked::Ingest
        | Asked::Subscribe
        | Asked::Unsubscribe
        | Asked::Reactivate
        | Asked::Retry(..) => "POST, OPTIONS",
        Asked::One(_) => "GET, HEAD, PUT, DELETE, OPTIONS",
        Asked::List
        | Asked::Match
        | Asked::Status(_)
        | Asked::Deliveries(_)
        | Asked::DeadLetters(_)
        | Asked::Logs(_)
        | Asked::Explain(_) => "GET, HEAD, OPTIONS",
    }
}

fn unknown(path: &str) -> Refusal {
    if path.starts_with("/subscriptions") {
        Refusal::not_found("UNKNOWN_ENDPOINT", "Unknown subscription endpoint")
            .with("path", path.into())
    } else {
        Error::Reserved.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_told_by_the_path() {
        let check = |path, expected| assert_eq!(asked(path), expected, "{path}");
        check("/e", Some(Asked::Ingest));
        check("/ingest", Some(Asked::Ingest));
        check("/ingest/", None);
        check("/subscriptions", None);
        check("/subscriptions/", None);
        check("/subscriptions/list", Some(Asked::List));
        check("/subscriptions/list/", None);
        check("/subscriptions/lists", None);
        check("/subscriptions/01ABC", Some(Asked::One("01ABC")));
        check("/subscriptions/status/01ABC", Some(Asked::Status("01ABC")));
        check("/subscriptions/status/", None);
        check("/subscriptions/status", None);
        check("/subscriptions/01A/dead-letters", Some(Asked::DeadLetters("01A")));
        check("/subscriptions/01A/dead-letters/01B/retry", Some(Asked::Retry("01A", "01B")));
        check("/subscriptions/01A/dead-letters/01B", None);
        check("/subscriptions/01A/dead-letters//retry", None);
        check("/subscriptions/01A/dead-letters/01B/retry/x", None);
        check("/subscriptions/deliveries/01C/logs", Some(Asked::Logs("01C")));
        check("/subscriptions/01A/deliveries", Some(Asked::Deliveries("01A")));
    }
}
