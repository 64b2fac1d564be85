//! Which face a request is for.

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::StreamPath;

use crate::http::auth::{self, Caller, Needs};
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::{Server, admin, ds_subscriptions, events, health, streams, wakes};

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Face {
    Alive,
    Ready,
    Metrics,
    Callback,
    SigningKeys,
    LeaseTokens,
    LeaseSubscriptions,
    Keys,
    Rotate,
    StreamList,
    Consumers,
    Consumer,
    Deliveries,
    Delivery,
    Events,
    /// Nobody yet: the name belongs to a face all the same.
    Nobody,
    /// A stream, or the subscriptions to streams.
    Streams,
}

/// Every route, who answers it, and what it takes to ask. The first line that fits counts; `*`
/// stands for one segment, and `/**` at the end for nothing or whatever follows. What fits none is
/// a stream.
const ROUTES: &[(&str, Face, Needs)] = &[
    ("/health", Face::Alive, Needs::Nothing),
    ("/healthz", Face::Alive, Needs::Nothing),
    ("/readyz", Face::Ready, Needs::Nothing),
    ("/metrics", Face::Metrics, Needs::Metrics),
    ("/callback", Face::Nobody, Needs::Key),
    ("/callback/", Face::Nobody, Needs::Key),
    ("/callback/**", Face::Callback, Needs::Token),
    ("/v1/stream/__ds/jwks.json", Face::SigningKeys, Needs::Nothing),
    ("/v1/stream/__ds/subscriptions/*/callback", Face::LeaseTokens, Needs::Token),
    ("/v1/stream/__ds/subscriptions/*/ack", Face::LeaseTokens, Needs::Token),
    ("/v1/stream/__ds/subscriptions/*/release", Face::LeaseTokens, Needs::Token),
    ("/v1/stream/__ds/**", Face::LeaseSubscriptions, Needs::Data),
    ("/admin/v1/keys", Face::Keys, Needs::Manage),
    ("/admin/v1/keys/*", Face::Keys, Needs::Manage),
    ("/admin/v1/signing-keys/rotate", Face::Rotate, Needs::ManageAll),
    ("/admin/v1/streams", Face::StreamList, Needs::Operate),
    ("/admin/v1/consumers", Face::Consumers, Needs::Operate),
    ("/admin/v1/consumers/", Face::Nobody, Needs::Key),
    ("/admin/v1/consumers/**", Face::Consumer, Needs::Operate),
    ("/admin/v1/deliveries", Face::Deliveries, Needs::Operate),
    ("/admin/v1/deliveries/*", Face::Delivery, Needs::Operate),
    ("/e/**", Face::Events, Needs::Data),
    ("/ingest/**", Face::Events, Needs::Data),
    ("/subscriptions/**", Face::Events, Needs::Data),
    // Names that belong to other faces: no stream can have them, now or later.
    ("/admin/**", Face::Nobody, Needs::Key),
    ("/api/v1/**", Face::Nobody, Needs::Key),
    ("/console/**", Face::Nobody, Needs::Nothing),
    ("/openapi.json/**", Face::Nobody, Needs::Nothing),
    ("/v1/cards/**", Face::Nobody, Needs::Key),
    ("/v1/facts/**", Face::Nobody, Needs::Key),
    ("/v1/federation/**", Face::Nobody, Needs::Key),
    ("/v1/gardens/**", Face::Nobody, Needs::Key),
    ("/v1/subscriptions/**", Face::Nobody, Needs::Key),
];

/// Which face a path is of.
fn face_of(path: &str) -> (Face, Needs) {
    let found = ROUTES.iter().find(|(route, _, _)| fits(route, path));
    found.map_or((Face::Streams, Needs::Data), |(_, face, needs)| (*face, *needs))
}

/// Whether a path is one that the route stands for.
fn fits(route: &str, path: &str) -> bool {
    if let Some(root) = route.strip_suffix("/**") {
        let rest = path.strip_prefix(root);
        return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    }
    let Some((before, after)) = route.split_once('*') else { return route == path };
    let segment = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    segment.is_some_and(|segment| !segment.is_empty() && !segment.contains('/'))
}

/// Answers a request.
pub(crate) async fn route(server: &Server, request: Request<Incoming>) -> Reply {
    let started = server.engine.clock().now();
    let method = request.method().clone();
    let is_events = face_of(request.uri().path()).0 == Face::Events;
    let mut reply = match notification(server, request).await {
        Ok(reply) => reply,
        Err(error) if is_events => events::refused(error),
        Err(error) => error.reply(),
    };
    reply::finish(&mut reply);
    let elapsed = server.engine.clock().now().since(started);
    server.metrics.answered(&method, reply.status(), elapsed);
    reply
}

async fn notification(server: &Server, request: Request<Incoming>) -> Result<Reply, Error> {
    if request.method() == Method::OPTIONS {
        return Ok(reply::preflight());
    }
    let (face, needs) = face_of(request.uri().path());
    let caller = auth::admit(server, needs, &request)?;
    let method = request.method();
    match (face, caller) {
        (Face::Nobody, _) => Err(Error::Reserved),
        (Face::Alive, _) => looks(method).map(|()| health::alive()),
        (Face::Ready, _) => {
            looks(method)?;
            Ok(health::ready(server).await)
        }
        (Face::Metrics, _) => looks(method).map(|()| server.metrics.render(&server.engine)),
        (Face::SigningKeys, _) => ds_subscriptions::published(server, method),
        (Face::Callback, _) => wakes::callback(server, request).await,
        (Face::LeaseTokens, caller) => {
            ds_subscriptions::answer_token(server, caller.as_ref(), request).await
        }
        (face, Some(caller)) => answer(server, face, &caller, request).await,
        // A face that is told who asks has a line that asks for a key.
        (_, None) => Err(Error::NoKey),
    }
}

/// Answers a request of somebody who is known.
async fn answer(
    server: &Server,
    face: Face,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (path, query) = (request.uri().path(), request.uri().query());
    match face {
        Face::LeaseSubscriptions => ds_subscriptions::answer(server, caller, request).await,
        Face::Events => Ok(events::answer(server, caller, request).await),
        Face::Keys => admin::keys::answer(server, caller, request).await,
        Face::Rotate if request.method() == Method::POST => {
            ds_subscriptions::rotate(server, request).await
        }
        Face::Rotate => {
            let method = request.method().clone();
            Err(Error::Method { method, allowed: "POST, OPTIONS" })
        }
        Face::StreamList => {
            looks(request.method())?;
            admin::streams(server, caller, query)
        }
        Face::Consumers => {
            looks(request.method())?;
            admin::consumers(server, caller, query)
        }
        Face::Consumer => {
            looks(request.method())?;
            admin::consumer(server, caller, admin::consumer_name(path).unwrap_or_default())
        }
        Face::Deliveries => {
            looks(request.method())?;
            admin::deliveries(server, caller, query)
        }
        Face::Delivery => {
            looks(request.method())?;
            admin::delivery(server, caller, path)
        }
        _ => {
            if let Some(asked) = wakes::asked(query)? {
                return wakes::answer(server, caller, asked, request).await;
            }
            let path = StreamPath::parse(path)?;
            streams::answer(server, caller, &path, request).await
        }
    }
}

/// Whether the request only looks.
fn looks(method: &Method) -> Result<(), Error> {
    match *method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(Error::Method { method: method.clone(), allowed: "GET, HEAD, OPTIONS" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_segments_are_reserved() {
        let check = |path, face, needs| assert_eq!(face_of(path), (face, needs), "{path}");
        check("/callback/x", Face::Callback, Needs::Token);
        check("/callback/x/y", Face::Callback, Needs::Token);
        check("/callback/", Face::Nobody, Needs::Key);
        check("/v1/stream/__ds", Face::LeaseSubscriptions, Needs::Data);
        check("/v1/stream/__ds/x", Face::LeaseSubscriptions, Needs::Data);
        check("/v1/stream/__ds/subscriptions/a/claim", Face::LeaseSubscriptions, Needs::Data);
        check("/v1/stream/__ds/subscriptions/a/ack", Face::LeaseTokens, Needs::Token);
        check("/v1/stream/__ds/subscriptions/a/streams/ack", Face::LeaseSubscriptions, Needs::Data);
        check("/v1/stream/__ds/subscriptions//ack", Face::LeaseSubscriptions, Needs::Data);
        check("/v1/stream/__ds/jwks.json", Face::SigningKeys, Needs::Nothing);
        check("/v1/stream/__dsx", Face::Streams, Needs::Data);
        check("/admin/v1/keys/a", Face::Keys, Needs::Manage);
        check("/admin/v1/keys/a/b", Face::Nobody, Needs::Key);
        check("/admin/v1/consumers/a", Face::Consumer, Needs::Operate);
        check("/e", Face::Events, Needs::Data);
        check("/subscriptions/list", Face::Events, Needs::Data);
        for stream in ["/events", "/v1/stream/a", "/callbacks", "/healthz/x", "/administer"] {
            check(stream, Face::Streams, Needs::Data);
        }
    }
}
