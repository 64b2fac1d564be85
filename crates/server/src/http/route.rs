//! Which face a request is for, and what it takes to ask it.

use http::{Method, Uri};

use super::auth::Requirement;
use super::error::RequestError;
use super::query;

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
    Explanation,
    Timers,
    Audit,
    DeadLetters,
    Replay,
    Events,
    Documents,
    DocumentBatch,
    Facts,
    TriggerCalls,
    TriggerKeys,
    Tokens,
    Indexes,
    Rules,
    Triggers,
    TriggerSecrets,
    TriggerCheckpoint,
    /// Nobody yet: the name belongs to a face all the same.
    Nobody,
    /// Subscriptions to streams: the path is a pattern.
    PatternSubscriptions,
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
    ("/v1/stream/__ds/**", Face::LeaseSubscriptions, Requirement::Subscriptions),
    ("/admin/v1/keys", Face::Keys, Requirement::Manage),
    ("/admin/v1/keys/*", Face::Keys, Requirement::Manage),
    ("/admin/v1/signing-keys/rotate", Face::Rotate, Requirement::ManageAll),
    ("/admin/v1/tokens/trigger", Face::Tokens, Requirement::Manage),
    ("/admin/v1/tokens/system", Face::Tokens, Requirement::Manage),
    ("/admin/v1/timers", Face::Timers, Requirement::ManageAll),
    ("/admin/v1/timers/*/retry", Face::Timers, Requirement::ManageAll),
    ("/admin/v1/streams", Face::StreamList, Requirement::Operate),
    ("/admin/v1/consumers", Face::Consumers, Requirement::Operate),
    ("/admin/v1/consumers/", Face::Nobody, Requirement::Key),
    ("/admin/v1/consumers/**", Face::Consumer, Requirement::Operate),
    ("/admin/v1/deliveries", Face::Deliveries, Requirement::Operate),
    ("/admin/v1/deliveries/explain", Face::Explanation, Requirement::Operate),
    ("/admin/v1/deliveries/*", Face::Delivery, Requirement::Operate),
    ("/admin/v1/audit", Face::Audit, Requirement::Operate),
    ("/admin/v1/audit/verify", Face::Audit, Requirement::Operate),
    ("/admin/v1/dlq", Face::DeadLetters, Requirement::Operate),
    ("/admin/v1/dlq/replays/*", Face::Replay, Requirement::Operate),
    ("/admin/v1/dlq/discards/*", Face::Replay, Requirement::Operate),
    ("/admin/v1/dlq/*/discard", Face::DeadLetters, Requirement::Operate),
    ("/admin/v1/dlq/*", Face::DeadLetters, Requirement::Operate),
    ("/admin/v1/replays/*", Face::Replay, Requirement::Operate),
    ("/admin/v1/tenants/*/indexes", Face::Indexes, Requirement::Operate),
    ("/admin/v1/tenants/*/rules", Face::Rules, Requirement::Operate),
    ("/admin/v1/tenants/*/secrets", Face::TriggerSecrets, Requirement::Operate),
    ("/admin/v1/tenants/*/secrets/*", Face::TriggerSecrets, Requirement::Operate),
    ("/admin/v1/tenants/*/secrets/*/rotate", Face::TriggerSecrets, Requirement::Operate),
    ("/admin/v1/tenants/*/secrets/*/revoke-previous", Face::TriggerSecrets, Requirement::Operate),
    ("/admin/v1/triggers/**", Face::Triggers, Requirement::Operate),
    ("/admin/v1/checkpoints/trigger_evaluator", Face::TriggerCheckpoint, Requirement::Operate),
    ("/e/**", Face::Events, Requirement::Data),
    ("/ingest/**", Face::Events, Requirement::Data),
    ("/subscriptions/unsubscribe", Face::Events, Requirement::Data),
    ("/subscriptions/pause", Face::Events, Requirement::RunSubscriptions),
    ("/subscriptions/resume", Face::Events, Requirement::RunSubscriptions),
    ("/subscriptions/*/dead-letters/*/retry", Face::Events, Requirement::RunSubscriptions),
    ("/subscriptions/*/dead-letters/retry", Face::Events, Requirement::RunSubscriptions),
    ("/subscriptions/**", Face::Events, Requirement::Subscriptions),
    ("/api/v1/trigger/get", Face::TriggerCalls, Requirement::Token),
    ("/api/v1/trigger/query", Face::TriggerCalls, Requirement::Token),
    ("/api/v1/trigger/write", Face::TriggerCalls, Requirement::Token),
    ("/api/v1/trigger/jwks.json", Face::TriggerKeys, Requirement::Nothing),
    ("/api/v1/trigger/**", Face::Nobody, Requirement::Key),
    // A query reads, although it is sent as `POST`.
    ("/api/v1/query", Face::Documents, Requirement::Read),
    ("/api/v1/batch", Face::DocumentBatch, Requirement::Data),
    ("/api/v1/**", Face::Documents, Requirement::Data),
    ("/v1/cards/**", Face::Facts, Requirement::Data),
    ("/v1/facts/**", Face::Facts, Requirement::Data),
    ("/v1/federation/**", Face::Facts, Requirement::Data),
    ("/v1/gardens/**", Face::Facts, Requirement::Data),
    // What lets somebody be told is a token, and the right to read: the face asks for both.
    ("/v1/subscriptions/**", Face::Facts, Requirement::Read),
    // Names that belong to other faces: no stream can have them, now or later.
    ("/admin/**", Face::Nobody, Requirement::Key),
    ("/console/**", Face::Nobody, Requirement::Nothing),
    ("/openapi.json/**", Face::Nobody, Requirement::Nothing),
];

/// Parameters that make a request one about subscriptions to streams.
const SUBSCRIPTION_PARAMETERS: [&str; 2] = ["subscription", "subscriptions"];

/// The face that a request is for, and what it takes to ask it. What is no line of the table is a
/// stream, unless the query says that it is about subscriptions: so it says what is needed, too.
pub(crate) fn face_of(uri: &Uri) -> (Face, Requirement) {
    let path = uri.path();
    if let Some((_, face, needed)) = ROUTES.iter().find(|(route, _, _)| is_match(route, path)) {
        return (*face, *needed);
    }
    if uri.query().is_some_and(|query| query::has_any(query, &SUBSCRIPTION_PARAMETERS)) {
        return (Face::PatternSubscriptions, Requirement::Subscriptions);
    }
    (Face::Streams, Requirement::Data)
}

/// Whether a path is one that the route stands for.
fn is_match(route: &str, path: &str) -> bool {
    if let Some(root) = route.strip_suffix("/**") {
        let rest = path.strip_prefix(root);
        return rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    }
    let Some((before, after)) = route.split_once('*') else { return route == path };
    let Some(rest) = path.strip_prefix(before) else { return false };
    let (segment, rest) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    !segment.is_empty() && is_match(after, rest)
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
        let check = |uri: &str, face, requirement| {
            let parsed: Uri = uri.parse().unwrap();
            assert_eq!(face_of(&parsed), (face, requirement), "{uri}");
        };
        check("/callback/x", Face::Callback, Requirement::Token);
        check("/callback/x/y", Face::Callback, Requirement::Token);
        check("/callback/", Face::Nobody, Requirement::Key);
        check("/v1/stream/__ds", Face::LeaseSubscriptions, Requirement::Subscriptions);
        check("/v1/stream/__ds/x", Face::LeaseSubscriptions, Requirement::Subscriptions);
        check(
            "/v1/stream/__ds/subscriptions/a/claim",
            Face::LeaseSubscriptions,
            Requirement::Subscriptions,
        );
        check("/v1/stream/__ds/subscriptions/a/ack", Face::LeaseTokens, Requirement::Token);
        check(
            "/v1/stream/__ds/subscriptions/a/streams/ack",
            Face::LeaseSubscriptions,
            Requirement::Subscriptions,
        );
        check(
            "/v1/stream/__ds/subscriptions//ack",
            Face::LeaseSubscriptions,
            Requirement::Subscriptions,
        );
        check("/v1/stream/__ds/jwks.json", Face::SigningKeys, Requirement::Nothing);
        check("/v1/stream/__dsx", Face::Streams, Requirement::Data);
        check("/admin/v1/keys/a", Face::Keys, Requirement::Manage);
        check("/admin/v1/keys/a/b", Face::Nobody, Requirement::Key);
        check("/admin/v1/consumers/a", Face::Consumer, Requirement::Operate);
        check("/e", Face::Events, Requirement::Data);
        check("/subscriptions/list", Face::Events, Requirement::Subscriptions);
        check("/subscriptions/unsubscribe", Face::Events, Requirement::Data);
        for run in ["/subscriptions/pause", "/subscriptions/resume"] {
            check(run, Face::Events, Requirement::RunSubscriptions);
        }
        let retry = "/subscriptions/A/dead-letters/B/retry";
        check(retry, Face::Events, Requirement::RunSubscriptions);
        for other in
            ["/subscriptions//dead-letters/B/retry", "/subscriptions/A/dead-letters/B/c/retry"]
        {
            check(other, Face::Events, Requirement::Subscriptions);
        }
        check("/api/v1/query", Face::Documents, Requirement::Read);
        check("/api/v1/batch", Face::DocumentBatch, Requirement::Data);
        for documents in ["/api/v1", "/api/v1/rooms", "/api/v1/rooms/query", "/api/v1/batch/x"] {
            check(documents, Face::Documents, Requirement::Data);
        }
        check("/v1/facts", Face::Facts, Requirement::Data);
        check("/v1/gardens/a/members/b", Face::Facts, Requirement::Data);
        check("/v1/subscriptions/a", Face::Facts, Requirement::Read);
        check("/v1/factsx", Face::Streams, Requirement::Data);
        for call in ["get", "query", "write"] {
            check(&format!("/api/v1/trigger/{call}"), Face::TriggerCalls, Requirement::Token);
        }
        check("/api/v1/trigger/jwks.json", Face::TriggerKeys, Requirement::Nothing);
        check("/api/v1/trigger/get/x", Face::Nobody, Requirement::Key);
        check("/admin/v1/tokens/trigger", Face::Tokens, Requirement::Manage);
        check("/admin/v1/tenants/a/rules", Face::Rules, Requirement::Operate);
        check("/admin/v1/tenants/a/indexes", Face::Indexes, Requirement::Operate);
        check("/admin/v1/tenants/a/b/rules", Face::Nobody, Requirement::Key);
        for secrets in ["", "/a", "/a/rotate", "/a/revoke-previous"] {
            let path = format!("/admin/v1/tenants/t/secrets{secrets}");
            check(&path, Face::TriggerSecrets, Requirement::Operate);
        }
        check("/admin/v1/tenants/t/secrets/a/show", Face::Nobody, Requirement::Key);
        check("/admin/v1/triggers", Face::Triggers, Requirement::Operate);
        check("/admin/v1/triggers/a/b/status", Face::Triggers, Requirement::Operate);
        check("/admin/v1/checkpoints/x", Face::Nobody, Requirement::Key);
        for stream in ["/events", "/v1/stream/a", "/callbacks", "/healthz/x", "/administer"] {
            check(stream, Face::Streams, Requirement::Data);
        }
    }

    #[test]
    fn the_query_says_whether_a_stream_or_its_subscriptions_are_meant() {
        let check = |uri: &str, face| {
            let parsed: Uri = uri.parse().unwrap();
            assert_eq!(face_of(&parsed).0, face, "{uri}");
        };
        for query in ["subscription=a", "x&subscriptions", "%73ubscription=a", "subscription%73"] {
            check(&format!("/a/*?{query}"), Face::PatternSubscriptions);
            check(&format!("/_x?{query}"), Face::PatternSubscriptions);
            check(&format!("/subscriptions/list?{query}"), Face::Events);
        }
        for query in ["", "xsubscription=a", "a=subscription", "subscription+=a", "offset=%2D1"] {
            check(&format!("/a?{query}"), Face::Streams);
        }
    }
}
