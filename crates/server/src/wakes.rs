//! The wake face: webhook subscriptions on patterns of streams, and the callbacks of consumers.

mod append;
mod callback;
pub(crate) mod fields;
mod subscribe;
mod words;

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::StreamPath;
use reveille_core::subscription::Subscription;

pub(crate) use callback::bearer_token;
pub use words::Words;
pub(crate) use words::lease_stream;

use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::Error;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Where callbacks come in: the rest of the path is a consumer's name, percent-encoded as it is.
const CALLBACK: &str = "/callback/";

/// Answers a callback, if the request is one.
pub(crate) async fn callback(server: &Server, request: Request<Incoming>) -> Result<Reply, Error> {
    callback::answer(server, request).await
}

/// What a request asks of subscriptions, if its query says that it does.
pub(crate) fn asked(raw: Option<&str>) -> Result<Option<Asked>, Error> {
    // Nearly no request has such a query: they are told apart without reading it.
    if !raw.is_some_and(|raw| raw.contains("subscription")) {
        return Ok(None);
    }
    let query = Query::parse(raw);
    if let Some(name) = query.get("subscription")? {
        return Ok(Some(Asked::One(name.to_owned())));
    }
    Ok(query.get("subscriptions")?.map(|_| Asked::All))
}

/// Which subscriptions are meant.
pub(crate) enum Asked {
    /// The one of this name.
    One(String),
    /// Those with the pattern in the path.
    All,
}

/// Answers what is asked of subscriptions.
pub(crate) async fn answer(
    server: &Server,
    caller: &Caller,
    asked: Asked,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let method = request.method().clone();
    match (asked, method) {
        (Asked::One(name), Method::PUT) => subscribe::create(server, caller, &name, request).await,
        (Asked::One(name), Method::GET) => subscribe::show(server, caller, &name),
        (Asked::One(name), Method::DELETE) => subscribe::delete(server, caller, &name).await,
        (Asked::One(_), method) => {
            Err(Error::Method { method, allowed: "GET, PUT, DELETE, OPTIONS" })
        }
        (Asked::All, Method::GET) => subscribe::list(server, caller, request.uri().path()),
        (Asked::All, method) => Err(Error::Method { method, allowed: "GET, OPTIONS" }),
    }
}

/// The base of callback URLs, from the request that makes a subscription. Where the server has one
/// of its own there may be none.
pub(crate) fn callback_base(server: &Server, request: &Parts) -> Result<Option<Arc<str>>, Error> {
    let base = reply::callable_base_url(request);
    if base.is_none() && server.config.public_url.is_none() {
        let wrong = "callback URLs are made of the header Host, which must be a host or a host and \
                     a port; send one, or start the server with --public-url";
        return Err(Error::Subscription(wrong.into()));
    }
    Ok(base.map(Into::into))
}

/// Checks the name of a subscription that is to be made, beyond what every name must be.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if matches!(name, "." | "..") {
        let wrong = "a subscription id is neither `.` nor `..`: clients take them out of URLs";
        return Err(Error::Subscription(wrong.into()));
    }
    Ok(())
}

/// The name of a consumer, as it stands in URLs and notices.
pub(crate) fn consumer_name(subscription: &Subscription, path: &StreamPath) -> String {
    format!("{}:{}", subscription.spec.name, fields::encode_component(path.as_str()))
}
