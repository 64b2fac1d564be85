//! `PUT`: make a stream, alone or as a fork of another.

use http::header;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::stream::create::{Create, ForkRequest};
use reveille_core::stream::expiry::plain_number;
use reveille_core::stream::{Body, Expiry, Head};
use reveille_core::{ContentType, Offset, StreamPath};

use super::error::Error;
use super::headers;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::reply::{self, Reply};
use crate::http::{inbound, trace};

pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    path: &StreamPath,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let given = headers::text(&parts.headers, &header::CONTENT_TYPE)?;
    // A malformed type is as good as none.
    let content_type = given.and_then(ContentType::parse);
    let ttl = headers::text(&parts.headers, &headers::STREAM_TTL)?;
    let expires_at = headers::text(&parts.headers, &headers::STREAM_EXPIRES_AT)?;
    let expiry = Expiry::parse(ttl, expires_at)?;
    let fork = fork_request(&parts.headers)?;
    if let Some(fork) = &fork {
        if fork.source.is_internal() {
            return Err(Error::ReservedSource);
        }
        caller.check_reading(fork.source.as_str())?;
    }
    let closed = headers::is_closing(&parts.headers);
    let max = server.config.max_body_bytes;
    let (engine, tenant) = (&server.engine, &caller.tenant);
    let body = inbound::read_in_turn(engine, tenant, &parts.headers, body, max).await?;
    let initial = Body::new(body.bytes.clone(), content_type.as_ref());
    let create = Create { content_type, expiry, closed, fork, body: initial };
    // Making an empty stream tells nobody: only what it begins with is an append.
    let span =
        if body.bytes.is_empty() { None } else { trace::begin(server, "append", &parts.headers) };
    let within = span.map(|span| span.trace);
    let created = engine.create(tenant, path, create, within).await;
    trace::end(server, span, path, &created);
    let (head, is_new) = created?;
    Ok(created_reply(server, path, &parts, &head, is_new))
}

fn created_reply(
    server: &Server,
    path: &StreamPath,
    request: &Parts,
    head: &Head,
    is_new: bool,
) -> Reply {
    let mut reply = reply::status(if is_new { StatusCode::CREATED } else { StatusCode::OK });
    let out = reply.headers_mut();
    reply::set(out, header::LOCATION, location(server, path, request));
    reply::set(out, header::CONTENT_TYPE, head.content_type.as_str());
    headers::set_next_offset(out, head.tail);
    headers::set_closed(out, head.closed.is_some());
    reply
}

/// The stream's URL as the client can reach it.
fn location(server: &Server, path: &StreamPath, request: &Parts) -> String {
    let public =
        server.config.public_url.as_ref().map(|base| base.trim_end_matches('/').to_owned());
    let base = public.or_else(|| reply::base_url(request));
    base.map_or_else(|| path.to_string(), |base| format!("{base}{path}"))
}

fn fork_request(headers: &HeaderMap) -> Result<Option<ForkRequest>, Error> {
    let source = headers::text(headers, &headers::STREAM_FORKED_FROM)?;
    let offset = headers::text(headers, &headers::STREAM_FORK_OFFSET)?;
    let sub_offset = headers::text(headers, &headers::STREAM_FORK_SUB_OFFSET)?;
    let Some(source) = source else {
        return match (offset, sub_offset) {
            (None, None) => Ok(None),
            _ => Err(RequestError::Header(
                "Stream-Fork-Offset and Stream-Fork-Sub-Offset need Stream-Forked-From".into(),
            )
            .into()),
        };
    };
    let source = StreamPath::parse(source)
        .map_err(|error| RequestError::Header(format!("Stream-Forked-From: {error}")))?;
    let at = match offset {
        None => None,
        Some(text) => {
            let parsed: Result<Offset, _> = text.parse();
            Some(parsed.map_err(|error| Error::Offset(format!("Stream-Fork-Offset: {error}")))?)
        }
    };
    let sub_offset = match sub_offset {
        None => 0,
        Some(text) => plain_number(text).ok_or_else(|| {
            RequestError::Header("Stream-Fork-Sub-Offset is a number without leading zeros".into())
        })?,
    };
    Ok(Some(ForkRequest { source, at, sub_offset }))
}
