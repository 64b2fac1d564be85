//! Which face a request is for.

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::StreamPath;

use crate::error::Error;
use crate::reply::{self, Reply};
use crate::{Server, admin, ds_subscriptions, health, streams, wake};

/// Names that belong to other faces: no stream can have them, now or later.
const RESERVED: &[&str] = &[
    "/admin",
    "/api/v1",
    "/callback",
    "/console",
    "/e",
    "/ingest",
    "/openapi.json",
    "/subscriptions",
    "/v1/cards",
    "/v1/facts",
    "/v1/federation",
    "/v1/gardens",
    "/v1/subscriptions",
];

/// Answers a request.
pub(crate) async fn route(server: &Server, request: Request<Incoming>) -> Reply {
    let started = server.engine.clock().now();
    let method = request.method().clone();
    let mut reply = match dispatch(server, request).await {
        Ok(reply) => reply,
        Err(error) => error.reply(),
    };
    reply::finish(&mut reply);
    let elapsed = server.engine.clock().now().since(started);
    server.metrics.answered(&method, reply.status(), elapsed);
    reply
}

async fn dispatch(server: &Server, request: Request<Incoming>) -> Result<Reply, Error> {
    if request.method() == Method::OPTIONS {
        return Ok(reply::preflight());
    }
    let path = request.uri().path();
    if wake::is_callback(path) {
        return wake::callback(server, request).await;
    }
    if ds_subscriptions::is_control(path) {
        return ds_subscriptions::answer(server, request).await;
    }
    match path {
        "/health" | "/healthz" | "/readyz" | "/metrics" => look(server, &request).await,
        _ if path.starts_with(ADMIN) && is_known(path) => look(server, &request).await,
        "/admin/v1/signing-keys/rotate" => {
            if request.method() != Method::POST {
                let method = request.method().clone();
                return Err(Error::Method { method, allowed: "POST, OPTIONS" });
            }
            ds_subscriptions::rotate(server, request).await
        }
        _ if is_reserved(path) => Err(Error::Reserved),
        _ => {
            if let Some(asked) = wake::asked(request.uri().query())? {
                return wake::answer(server, asked, request).await;
            }
            let path = StreamPath::parse(path)?;
            streams::answer(server, &path, request).await
        }
    }
}

/// Where operators look.
const ADMIN: &str = "/admin/v1/";

fn is_known(path: &str) -> bool {
    matches!(path, "/admin/v1/streams" | "/admin/v1/consumers")
        || admin::consumer_name(path).is_some()
}

/// Answers what only looks.
async fn look(server: &Server, request: &Request<Incoming>) -> Result<Reply, Error> {
    let method = request.method().clone();
    if !matches!(method, Method::GET | Method::HEAD) {
        return Err(Error::Method { method, allowed: "GET, HEAD, OPTIONS" });
    }
    let (path, query) = (request.uri().path(), request.uri().query());
    match path {
        "/readyz" => Ok(health::ready(server).await),
        "/metrics" => Ok(server.metrics.render(&server.engine)),
        "/admin/v1/streams" => admin::streams(server, query),
        "/admin/v1/consumers" => admin::consumers(server, query),
        _ => match admin::consumer_name(path) {
            Some(name) => admin::consumer(server, name),
            None => Ok(health::alive()),
        },
    }
}

fn is_reserved(path: &str) -> bool {
    RESERVED.iter().any(|name| {
        path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_segments_are_reserved() {
        assert!(is_reserved("/callback/x"));
        assert!(ds_subscriptions::is_control("/v1/stream/__ds"));
        assert!(ds_subscriptions::is_control("/v1/stream/__ds/x"));
        assert!(!ds_subscriptions::is_control("/v1/stream/__dsx"));
        assert!(is_reserved("/e"));
        assert!(!is_reserved("/events"));
        assert!(!is_reserved("/v1/stream/a"));
        assert!(!is_reserved("/callbacks"));
    }
}
