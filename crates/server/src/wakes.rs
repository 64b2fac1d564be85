//! The wakes face: webhook subscriptions on patterns of streams, and the callbacks of consumers.

mod callback;
mod change;
mod error;
mod payload;
mod subscribe;

use http::{Method, Request};
use hyper::body::Incoming;

pub(crate) use callback::answer as answer_callback;
pub(crate) use payload::encode_wake;

use self::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::query::Query;
use crate::http::reply::Reply;

/// Which subscriptions a request is about.
enum Selector {
    /// The one of this name.
    Name(String),
    /// Those with the pattern in the path.
    Pattern,
}

/// The subscriptions that a request is about, as its query says.
fn selector(query: &Query) -> Result<Selector, RequestError> {
    if let Some(name) = query.get("subscription")? {
        return Ok(Selector::Name(name.to_owned()));
    }
    query.get("subscriptions").map(|_| Selector::Pattern)
}

/// Answers a request about subscriptions.
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
    let query = Query::parse(request.uri().query());
    let selector = selector(&query)?;
    query.check_known(match selector {
        Selector::Name(_) => &["subscription"],
        Selector::Pattern => &["subscriptions", "created_by", "limit", "after"],
    })?;
    match (selector, method) {
        (Selector::Name(name), Method::PUT) => {
            subscribe::create(server, caller, &name, request).await
        }
        (Selector::Name(name), Method::PATCH) => {
            change::change(server, caller, &name, request).await
        }
        (Selector::Name(name), Method::GET) => subscribe::show(server, caller, &name),
        (Selector::Name(name), Method::DELETE) => subscribe::delete(server, caller, &name).await,
        (Selector::Name(_), method) => {
            Err(RequestError::Method { method, allowed: "GET, PUT, PATCH, DELETE, OPTIONS" }.into())
        }
        (Selector::Pattern, Method::GET) => {
            subscribe::list(server, caller, request.uri().path(), &query).await
        }
        (Selector::Pattern, method) => {
            Err(RequestError::Method { method, allowed: "GET, OPTIONS" }.into())
        }
    }
}
