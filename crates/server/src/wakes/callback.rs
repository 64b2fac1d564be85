//! `POST /callback/{consumer}`: a consumer claims, acknowledges, follows, appends, and is done.

mod body;

use http::header::AUTHORIZATION;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::media::{ContentType, Framing};
use reveille_core::stream::Body;
use reveille_core::stream::append::Append;
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_engine as engine;
use reveille_engine::wakes::callback::CallbackBody;
use reveille_engine::wakes::{CallbackAnswer, CallbackError, CallbackRequest, WakeRejection};
use serde_json::{Value, json};

use self::body::{ParsedCallback, StreamMessages};
use super::error::rejection_refusal;
use crate::Server;
use crate::http::auth::bearer_token;
use crate::http::error::{EngineRefusal, Refusal, RequestError};
use crate::http::fields::FieldError;
use crate::http::reply::{self, Reply};
use crate::http::subscription::AckedOffset;
use crate::http::{inbound, query, trace};

/// Where callbacks come in: the rest of the path is a consumer's name, percent-encoded as it is.
const CALLBACK: &str = "/callback/";

/// Why a callback is not heard.
enum Error {
    /// It is none.
    Request(RequestError),
    Body(FieldError),
    Callback(CallbackError),
}

impl From<RequestError> for Error {
    fn from(error: RequestError) -> Error {
        Error::Request(error)
    }
}

impl From<FieldError> for Error {
    fn from(error: FieldError) -> Error {
        Error::Body(error)
    }
}

impl From<CallbackError> for Error {
    fn from(error: CallbackError) -> Error {
        Error::Callback(error)
    }
}

/// Answers a callback.
pub(crate) async fn answer(server: &Server, request: Request<Incoming>) -> Reply {
    let (refusal, token) = match report(server, request).await {
        Ok(reply) => {
            server.metrics.count_callback("OK");
            return reply;
        }
        Err(Error::Request(error)) => return error.refusal().reply(),
        Err(Error::Body(error)) => (RequestError::Field(error).refusal(), None),
        Err(Error::Callback(CallbackError { error, token })) => {
            let refusal = error.refusal_with(rejection_refusal);
            if !matches!(error, engine::Error::Rejected(_)) {
                server.metrics.count_callback(refusal.code);
                return refusal.reply();
            }
            (refusal, token)
        }
    };
    server.metrics.count_callback(refusal.code);
    refusal_reply(refusal, token)
}

async fn report(server: &Server, request: Request<Incoming>) -> Result<Reply, Error> {
    if request.method() != Method::POST {
        let method = request.method().clone();
        return Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into());
    }
    let (parts, body) = request.into_parts();
    let consumer = parts.uri.path().strip_prefix(CALLBACK).unwrap_or_default();
    let bearer = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(token) = bearer.and_then(bearer_token) else {
        return Err(CallbackError { error: WakeRejection::TokenInvalid.into(), token: None }.into());
    };
    let mut request = empty_request(consumer, token);
    // Whoever has no good token sends nothing, and learns nothing: not even what is wrong with it.
    let tenant = server.engine.caller(&request)?.tenant;
    server.engine.turn(&tenant).await.map_err(RequestError::from)?;
    let max = server.config.max_body_bytes;
    let body = inbound::read(&server.engine, &tenant, &parts.headers, body, max).await?;
    let mut parsed = ParsedCallback::parse(&body.bytes)?;
    let warnings = std::mem::take(&mut parsed.warnings);
    let started = server.engine.collects_spans().then(|| server.engine.clock().now());
    let parent = trace::parent(&parts.headers);
    let span = parent.and_then(|_| trace::begin(server, "callback", &parts.headers));
    request.trace = span.map(|span| span.trace);
    add_body(server, &tenant, &mut request, parsed)?;
    let has_appends = !request.body.appends.is_empty();
    let outcome = server.engine.report(request).await;
    let wake = outcome.as_ref().ok().and_then(|heard| heard.receipt.trace);
    let error = outcome.as_ref().err().map(|error| error.error.to_string());
    trace::end_callback(server, span, wake, started, consumer, error);
    Ok(reply::json(StatusCode::OK, &answer_json(&outcome?, has_appends, warnings)))
}

fn answer_json(heard: &CallbackAnswer, has_appends: bool, mut warnings: Vec<String>) -> Value {
    let CallbackAnswer { receipt, token, unreadable } = heard;
    let streams = streams_json(&receipt.streams);
    let mut body = json!({ "ok": true, "token": token, "streams": streams });
    let Some(object) = body.as_object_mut() else { return body };
    if has_appends {
        object.insert("appended".into(), receipt.appended.into());
    }
    warnings.extend(unreadable.iter().map(|path| {
        format!("{path} is not followed: the key that made the subscription may not read it")
    }));
    if !warnings.is_empty() {
        object.insert("warnings".into(), warnings.into());
    }
    body
}

/// What the engine is asked by whom, before it is known what.
fn empty_request(consumer: &str, token: &str) -> CallbackRequest {
    // A name that cannot be read is answered like one that is not the token's.
    let (subscription, path) = consumer.split_once(':').unwrap_or((consumer, ""));
    CallbackRequest {
        subscription: subscription.to_owned(),
        path: query::decode_path(path),
        token: token.to_owned(),
        body: CallbackBody::default(),
        trace: None,
    }
}

/// The one place where a body becomes what the engine is asked.
fn add_body(
    server: &Server,
    tenant: &Tenant,
    request: &mut CallbackRequest,
    parsed: ParsedCallback<'_>,
) -> Result<(), FieldError> {
    let ParsedCallback { body, messages, warnings: _ } = parsed;
    request.body = body;
    let append = |messages| append(server, tenant, messages);
    request.body.appends = messages.iter().map(append).collect::<Result<_, _>>()?;
    Ok(())
}

/// What is to be appended, in the type that the stream has.
fn append(
    server: &Server,
    tenant: &Tenant,
    messages: &StreamMessages<'_>,
) -> Result<(StreamPath, Append), FieldError> {
    // What the stream takes is known from the stream; the decision checks it again.
    let head = server.engine.head(tenant, &messages.path).ok();
    let content_type = head.map_or_else(ContentType::json, |head| head.content_type);
    let body = match content_type.framing() {
        Framing::Json => messages.json(),
        Framing::Text | Framing::Binary => messages.text()?,
    };
    let body = Body::new(body.into(), Some(&content_type));
    let append = Append { content_type: Some(content_type), body, ..Append::default() };
    Ok((messages.path.clone(), append))
}

fn streams_json(streams: &[(StreamPath, Option<Offset>)]) -> Value {
    let stream_json = |(path, acked): &(StreamPath, Option<Offset>)| json!({ "path": path.as_str(), "offset": AckedOffset(*acked) });
    streams.iter().map(stream_json).collect()
}

/// A refusal as consumers know it, with a token to go on with for those who may.
fn refusal_reply(refusal: Refusal, token: Option<String>) -> Reply {
    let Refusal { status, code, message, headers, .. } = refusal;
    let mut body = json!({ "ok": false, "error": { "code": code, "message": message } });
    if let (Some(token), Some(object)) = (token, body.as_object_mut()) {
        object.insert("token".into(), token.into());
    }
    let mut reply = reply::json(status, &body);
    reply.headers_mut().extend(headers);
    reply
}
