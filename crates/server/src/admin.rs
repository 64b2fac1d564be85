//! The face of operators: streams, consumers, deliveries, indexes, rules, keys and who changed
//! what, for those who look after them.

mod audit;
mod consumers;
mod deliveries;
mod dlq;
mod error;
mod indexes;
mod keys;
mod replays;
mod rules;
mod signing_keys;
mod streams;
mod tenants;
mod timers;
mod tokens;

use http::{Method, Request};
use hyper::body::Incoming;

pub(crate) use self::tenants::tenant_named;

use self::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::reply::Reply;
use crate::http::route::check_read_method;

/// What an operator can ask about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    Keys,
    Tokens,
    SigningKeys,
    Streams,
    Consumers,
    Consumer,
    Deliveries,
    Delivery,
    Explanation,
    Timers,
    Audit,
    DeadLetters,
    Replay,
    Indexes,
    Rules,
}

/// Answers a request about a resource.
pub(crate) async fn answer(
    server: &Server,
    caller: &Caller,
    resource: Resource,
    request: Request<Incoming>,
) -> Reply {
    let answer = match resource {
        Resource::Keys => keys::answer(server, caller, request).await,
        Resource::Tokens => tokens::answer(server, caller, request).await,
        Resource::DeadLetters => dlq::answer(server, caller, request).await,
        Resource::Timers => timers::answer(server, caller, request).await,
        Resource::Indexes => indexes::answer(server, caller, request).await,
        Resource::Rules => rules::answer(server, caller, request).await,
        Resource::SigningKeys if request.method() == Method::POST => {
            signing_keys::rotate(server, caller, request).await
        }
        Resource::Consumer if request.method() == Method::POST => {
            consumers::operate(server, caller, request).await
        }
        Resource::SigningKeys => {
            let method = request.method().clone();
            Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into())
        }
        _ => look_up(server, caller, resource, &request).await,
    };
    answer.unwrap_or_else(|error| error.refusal().reply())
}

/// Answers about what can only be looked at.
async fn look_up(
    server: &Server,
    caller: &Caller,
    resource: Resource,
    request: &Request<Incoming>,
) -> Result<Reply, Error> {
    check_read_method(request.method())?;
    let (path, query) = (request.uri().path(), request.uri().query());
    match resource {
        Resource::Streams => streams::list(server, caller, query).await,
        Resource::Consumers => consumers::list(server, caller, query).await,
        Resource::Consumer => consumers::show(server, caller, path).await,
        Resource::Deliveries => deliveries::list(server, caller, query).await,
        Resource::Delivery => deliveries::show(server, caller, path, query).await,
        Resource::Explanation => deliveries::explain(server, caller, query).await,
        Resource::Audit => audit::answer(server, caller, path, query).await,
        Resource::Replay => replays::show(server, caller, path, query),
        Resource::Keys
        | Resource::Tokens
        | Resource::SigningKeys
        | Resource::Timers
        | Resource::DeadLetters
        | Resource::Indexes
        | Resource::Rules => unreachable!("these can be changed"),
    }
}
