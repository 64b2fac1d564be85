//! `POST /callback/{consumer}`: a consumer claims, acknowledges, follows, appends, and is done.

use http::header::{self, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::consumer::Rejected;
use reveille_core::{Offset, StreamPath};
use reveille_engine::{CallbackError, CallbackRequest, Failure, Refused};
use serde_json::{Value, json};

use super::CALLBACK;
use super::append::{self, Draft, Sent};
use super::fields::{self, Fields, acked_text};
use crate::Server;
use crate::http::error::Error;
use crate::http::query;
use crate::http::reply::{self, Reply};
use crate::http::{inbound, trace};

pub(super) async fn answer(server: &Server, request: Request<Incoming>) -> Result<Reply, Error> {
    if request.method() != Method::POST {
        let method = request.method().clone();
        return Err(Error::Method { method, allowed: "POST, OPTIONS" });
    }
    let (parts, body) = request.into_parts();
    let raw = parts.uri.path().strip_prefix(CALLBACK).unwrap_or_default();
    let bearer = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = bearer.and_then(bearer_token) else {
        let refused = CallbackError { failure: Refused::TokenInvalid.into(), token: None };
        return Ok(refusal(server, &refused));
    };
    let max = server.config.max_body_bytes;
    let body = inbound::read(&server.engine, &parts.headers, body, max).await?;
    // A name that cannot be read is answered like one that is not the token's.
    let (subscription, path) = raw.split_once(':').unwrap_or((raw, ""));
    let (called, drafts) = match read(&body.bytes) {
        Ok(read) => read,
        Err(wrong) => return Ok(invalid(server, &wrong)),
    };
    let started = server.engine.collects_spans().then(|| server.engine.clock().now());
    let parent = trace::parent(&parts.headers);
    let span = parent.and_then(|_| trace::begin(server, "callback", &parts.headers));
    let mut called = CallbackRequest {
        trace: span.map(|span| span.trace),
        subscription: subscription.to_owned(),
        path: query::decode_path(path),
        token: token.to_owned(),
        ..called
    };
    if !drafts.is_empty() {
        // What streams there are, and of what type, is nobody's business who has no good token.
        let tenant = match server.engine.caller(&called) {
            Ok(claims) => claims.tenant,
            Err(refused) => return Ok(refusal(server, &refused)),
        };
        called.appends = match append::appends(server, &tenant, &drafts) {
            Ok(appends) => appends,
            Err(wrong) => return Ok(invalid(server, &wrong)),
        };
    }
    let asks_append = !called.appends.is_empty();
    let reported = server.engine.report(called).await;
    let wake = reported.as_ref().ok().and_then(|(standing, _)| standing.trace);
    let error = reported.as_ref().err().map(|refused| refused.failure.to_string());
    trace::callback(server, span, wake, started, raw, error);
    match reported {
        Ok((standing, token)) => {
            let mut body =
                json!({ "ok": true, "token": token, "streams": streams(&standing.streams) });
            server.metrics.called("OK");
            if asks_append && let Some(object) = body.as_object_mut() {
                object.insert("appended".into(), standing.appended.into());
            }
            Ok(reply::json(StatusCode::OK, &body))
        }
        Err(refused) => match &refused.failure {
            Failure::Refused(_) => Ok(refusal(server, &refused)),
            _ => {
                server.metrics.called("other");
                Err(refused.failure.into())
            }
        },
    }
}

/// The token of an `Authorization` header.
pub(crate) fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

fn streams(streams: &[(StreamPath, Option<Offset>)]) -> Value {
    let one = |(path, acked): &(StreamPath, Option<Offset>)| json!({ "path": path.as_str(), "offset": acked_text(*acked) });
    streams.iter().map(one).collect()
}

fn read(body: &[u8]) -> Result<(CallbackRequest, Vec<Draft<'_>>), fields::Wrong> {
    let sent = Sent::read(body)?;
    let fields = Fields(&sent.fields);
    let epoch = fields.number("epoch")?;
    let epoch = epoch.ok_or("`epoch` is missing; send the one from the notification")?;
    let acks = fields.acks("path", str::to_owned)?;
    let drafts = sent.drafts()?;
    if !drafts.is_empty() && acks.is_empty() {
        return Err(
            "`append` needs `acks`: what is appended is tied to what it was made from, so \
                    that a repeated callback appends nothing twice"
                .into(),
        );
    }
    let called = CallbackRequest {
        epoch,
        wake_id: fields.wake_id()?,
        acks,
        subscribe: fields.paths("subscribe")?,
        unsubscribe: fields.paths("unsubscribe")?,
        done: fields.flag("done")?,
        ..CallbackRequest::default()
    };
    Ok((called, drafts))
}

fn invalid(server: &Server, wrong: &str) -> Reply {
    server.metrics.called("INVALID_REQUEST");
    error(StatusCode::BAD_REQUEST, "INVALID_REQUEST", wrong, None)
}

fn refusal(server: &Server, refused: &CallbackError) -> Reply {
    let (status, code) = match &refused.failure {
        Failure::Refused(refused) => meaning(refused),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL"),
    };
    server.metrics.called(code);
    let message = refused.failure.to_string();
    let mut reply = error(status, code, &message, refused.token.as_deref());
    if status == StatusCode::UNAUTHORIZED {
        let challenge = HeaderValue::from_static("Bearer");
        reply.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    reply
}

fn error(status: StatusCode, code: &str, message: &str, token: Option<&str>) -> Reply {
    let mut body = json!({ "ok": false, "error": { "code": code, "message": message } });
    if let (Some(token), Some(object)) = (token, body.as_object_mut()) {
        object.insert("token".into(), token.into());
    }
    reply::json(status, &body)
}

/// The codes of the specification.
fn meaning(refused: &Refused) -> (StatusCode, &'static str) {
    const CONFLICT: StatusCode = StatusCode::CONFLICT;
    match refused {
        Refused::TokenInvalid => (StatusCode::UNAUTHORIZED, "TOKEN_INVALID"),
        Refused::TokenExpired { .. } => (StatusCode::UNAUTHORIZED, "TOKEN_EXPIRED"),
        Refused::Consumer(rejected) => match rejected {
            Rejected::StaleEpoch { .. } | Rejected::Fenced => (CONFLICT, "STALE_EPOCH"),
            Rejected::AlreadyClaimed
            | Rejected::Overtaken { .. }
            | Rejected::Held { .. }
            | Rejected::NoPendingWork => (CONFLICT, "ALREADY_CLAIMED"),
            Rejected::InvalidOffset { .. } => (CONFLICT, "INVALID_OFFSET"),
            Rejected::TooManyLinks { .. } => (StatusCode::BAD_REQUEST, "INVALID_REQUEST"),
            Rejected::Gone => (StatusCode::GONE, "CONSUMER_GONE"),
        },
        Refused::Append { .. } => (CONFLICT, "APPEND_REJECTED"),
        Refused::Exists
        | Refused::NotFound
        | Refused::TooManyStreams { .. }
        | Refused::TooManyKeys { .. }
        | Refused::HookExists
        | Refused::NoEvent
        | Refused::NoDeadLetter => (StatusCode::BAD_REQUEST, "INVALID_REQUEST"),
    }
}
