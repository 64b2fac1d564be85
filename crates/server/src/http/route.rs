//! Which face a request is for, and what it takes to ask it.

use http::Method;

use super::auth::Requirement;
use super::error::RequestError;

/// Who answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    Liveness,
    Readiness,
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
const ROUTES: &[(&str, Face, Requirement)] = &[
    ("/health", Face::Liveness, Requirement::Nothing),
    ("/healthz", Face::Liveness, Requirement::Nothing),
    ("/readyz", Face::Readiness, Requirement::Nothing),
    ("/metrics", Face::Metrics, Requirement::Metrics),
    ("/callback", Face::Nobody, Requirement::Key),
    ("/callback/", Face::Nobody, Requirement::Key),
    ("/callback/**", Face::Callback, Requirement::Token),
    ("/v1/stream/__ds/jwks.json", Face::SigningKeys, Requirement::Nothing),
    ("/v1/stream/__ds/subscriptions/*/callback", Face::LeaseTokens, Requirement::Token),
    ("/v1/stream/__ds/subscriptions/*/ack", Face::LeaseTokens, Requirement::Token),
    ("/v1/stream/__ds/subscriptions/*/release", Face::LeaseTokens, Requirement::Token),
    ("/v1/stream/__ds/**", Face::LeaseSubscriptions, Requirement::Data),
    ("/admin/v1/keys", Face::Keys, Requirement::Manage),
    ("/admin/v1/keys/*", Face::Keys, Requirement::Manage),
    ("/admin/v1/signing-keys/rotate", Face::Rotate, Requirement::ManageAll),
    ("/admin/v1/streams", Face::StreamList, Requirement::Operate),
    ("/admin/v1/consumers", Face::Consumers, Requirement::Operate),
    ("/admin/v1/consumers/", Face::Nobody, Requirement::Key),
    ("/admin/v1/consumers/**", Face::Consumer, Requirement::Operate),
    ("/admin/v1/deliveries", Face::Deliveries, Requirement::Operate),
    ("/admin/v1/deliveries/*", Face::Delivery, Requirement::Operate),
    ("/e/**", Face::Events, Requirement::Data),
    ("/ingest/**", Face::Events, Requirement::Data),
    ("/subscriptions/**", Face::Events, Requirement::Data),
    // Names that belong to other faces: no stream can have them, now or later.
    ("/admin/**", Face::Nobody, Requirement::Key),
    ("/api/v1/**", Face::Nobody, Requirement::Key),
    ("/console/**", Face::Nobody, Requirement::Nothing),
    ("/openapi.json/**", Face::Nobody, Requirement::Nothing),
    ("/v1/cards/**", Face::Nobody, Requirement::Key),
    ("/v1/facts/**", Face::Nobody, Requirement::Key),
    ("/v1/federation/**", Face::Nobody, Requirement::Key),
    ("/v1/gardens/**", Face::Nobody, Requirement::Key),
    ("/v1/subscriptions/**", Face::Nobody, Requirement::Key),
];

/// The face that a path belongs to, and what it takes to ask it.
pub(crate) fn face_of(path: &str) -> (Face, Requirement) {
    let found = ROUTES.iter().find(|(route, _, _)| is_match(route, path));
    found.map_or((Face::Streams, Requirement::Data), |(_, face, needed)| (*face, *needed))
}

/// Whether a path is one that the route stands for.
fn is_match(route: &str, path: &str) -> bool {
    if let Some(root) = route.strip_suffix("/**") {
        let rest = path.strip_prefix(root);
        return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    }
    let Some((before, after)) = route.split_once('*') else { return route == path };
    let segment = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    segment.is_some_and(|segment| !segment.is_empty() && !segment.contains('/'))
}

/// Whether the method only reads, where nothing else can be done.
pub(crate) fn check_read_method(method: &Method) -> Result<(), RequestError> {
    match *method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(RequestError::Method { method: method.clone(), allowed: "GET, HEAD, OPTIONS" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_segments_are_reserved() {
        let check =
            |path, face, requirement| assert_eq!(face_of(path), (face, requirement), "{path}");
        check("/callback/x", Face::Callback, Requirement::Token);
        check("/callback/x/y", Face::Callback, Requirement::Token);
        check("/callback/", Face::Nobody, Requirement::Key);
        check("/v1/stream/__ds", Face::LeaseSubscriptions, Requirement::Data);
        check("/v1/stream/__ds/x", Face::LeaseSubscriptions, Requirement::Data);
        check("/v1/stream/__ds/subscriptions/a/claim", Face::LeaseSubscriptions, Requirement::Data);
        check("/v1/stream/__ds/subscriptions/a/ack", Face::LeaseTokens, Requirement::Token);
        check(
            "/v1/stream/__ds/subscriptions/a/streams/ack",
            Face::LeaseSubscriptions,
            Requirement::Data,
        );
        check("/v1/stream/__ds/subscriptions//ack", Face::LeaseSubscriptions, Requirement::Data);
        check("/v1/stream/__ds/jwks.json", Face::SigningKeys, Requirement::Nothing);
        check("/v1/stream/__dsx", Face::Streams, Requirement::Data);
        check("/admin/v1/keys/a", Face::Keys, Requirement::Manage);
        check("/admin/v1/keys/a/b", Face::Nobody, Requirement::Key);
        check("/admin/v1/consumers/a", Face::Consumer, Requirement::Operate);
        check("/e", Face::Events, Requirement::Data);
        check("/subscriptions/list", Face::Events, Requirement::Data);
        for stream in ["/events", "/v1/stream/a", "/callbacks", "/healthz/x", "/administer"] {
            check(stream, Face::Streams, Requirement::Data);
        }
    }
}
