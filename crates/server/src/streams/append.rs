//! `POST`: append to a stream, or close it.

use std::sync::Arc;

use http::header::{self, HeaderValue};
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::limits::STREAM_SEQ_BYTES_MAX;
use reveille_core::stream::Body;
use reveille_core::stream::append::{Append, AppendReceipt};
use reveille_core::{ContentType, StreamPath};

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
    let producer = headers::producer(&parts.headers)?;
    let stream_seq = stream_seq(&parts.headers)?;
    let close = headers::is_closing(&parts.headers);
    let max = server.config.max_body_bytes;
    let (engine, tenant) = (&server.engine, &caller.tenant);
    let body = inbound::read_in_turn(engine, tenant, &parts.headers, body, max).await?;
    if body.bytes.is_empty() && !close {
        return Err(Error::EmptyBody);
    }
    let mut content_type = None;
    if !body.bytes.is_empty() {
        let given = headers::text(&parts.headers, &header::CONTENT_TYPE)?;
        let given = given.filter(|text| !text.is_empty()).ok_or(Error::ContentTypeMissing)?;
        content_type = Some(ContentType::parse(given).unwrap_or_else(ContentType::octet_stream));
    }
    let framed = Body::new(body.bytes.clone(), content_type.as_ref());
    let has_producer = producer.is_some();
    let append = Append { content_type, body: framed, producer, stream_seq, close };
    let span = trace::begin(server, "append", &parts.headers);
    let within = span.map(|span| span.trace);
    let receipt = engine.append(tenant, path, append, within).await;
    trace::end(server, span, path, &receipt);
    Ok(receipt_reply(&receipt?, has_producer, body.bytes.is_empty()))
}

/// 200 for a producer's new append, 204 for everything else that is accepted.
fn receipt_reply(receipt: &AppendReceipt, has_producer: bool, is_close_only: bool) -> Reply {
    let is_fresh = has_producer && !receipt.duplicate && !is_close_only;
    let mut reply = reply::status(if is_fresh { StatusCode::OK } else { StatusCode::NO_CONTENT });
    let out = reply.headers_mut();
    headers::set_next_offset(out, receipt.tail);
    headers::set_closed(out, receipt.closed);
    if let Some(state) = receipt.producer {
        out.insert(headers::PRODUCER_EPOCH, HeaderValue::from(state.epoch));
        out.insert(headers::PRODUCER_SEQ, HeaderValue::from(state.seq));
    }
    reply
}

fn stream_seq(headers: &HeaderMap) -> Result<Option<Arc<str>>, RequestError> {
    match headers::text(headers, &headers::STREAM_SEQ)? {
        Some(seq) if seq.is_empty() || seq.len() > STREAM_SEQ_BYTES_MAX => {
            Err(RequestError::Header(format!("Stream-Seq is 1 to {STREAM_SEQ_BYTES_MAX} bytes")))
        }
        seq => Ok(seq.map(Arc::from)),
    }
}
