//! The headers of the Durable Streams protocol, and reading them strictly.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use reveille_core::Offset;
use reveille_core::producer::ProducerTag;

use super::error::Error;
use crate::http::error::RequestError;
use crate::http::reply;

pub(super) const STREAM_NEXT_OFFSET: HeaderName = HeaderName::from_static("stream-next-offset");
pub(super) const STREAM_CLOSED: HeaderName = HeaderName::from_static("stream-closed");
pub(super) const STREAM_UP_TO_DATE: HeaderName = HeaderName::from_static("stream-up-to-date");
pub(super) const STREAM_CURSOR: HeaderName = HeaderName::from_static("stream-cursor");
pub(super) const STREAM_SEQ: HeaderName = HeaderName::from_static("stream-seq");
pub(super) const STREAM_TTL: HeaderName = HeaderName::from_static("stream-ttl");
pub(super) const STREAM_EXPIRES_AT: HeaderName = HeaderName::from_static("stream-expires-at");
pub(super) const STREAM_FORKED_FROM: HeaderName = HeaderName::from_static("stream-forked-from");
pub(super) const STREAM_FORK_OFFSET: HeaderName = HeaderName::from_static("stream-fork-offset");
pub(super) const STREAM_FORK_SUB_OFFSET: HeaderName =
    HeaderName::from_static("stream-fork-sub-offset");
pub(super) const SSE_DATA_ENCODING: HeaderName =
    HeaderName::from_static("stream-sse-data-encoding");
pub(super) const PRODUCER_ID: HeaderName = HeaderName::from_static("producer-id");
pub(super) const PRODUCER_EPOCH: HeaderName = HeaderName::from_static("producer-epoch");
pub(super) const PRODUCER_SEQ: HeaderName = HeaderName::from_static("producer-seq");
pub(super) const PRODUCER_EXPECTED_SEQ: HeaderName =
    HeaderName::from_static("producer-expected-seq");
pub(super) const PRODUCER_RECEIVED_SEQ: HeaderName =
    HeaderName::from_static("producer-received-seq");

const TRUE: HeaderValue = HeaderValue::from_static("true");

/// A header's text; one that is not text, or comes twice, is refused.
pub(super) fn text<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a str>, RequestError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(RequestError::Header(format!("the header {name} is given more than once")));
    }
    let text = value.to_str();
    text.map(Some).map_err(|_| RequestError::Header(format!("the header {name} is not plain text")))
}

/// Whether `Stream-Closed` says true; anything else is as if it were absent.
pub(super) fn is_closing(headers: &HeaderMap) -> bool {
    let value = headers.get(&STREAM_CLOSED).and_then(|value| value.to_str().ok());
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// The idempotent producer of a request, if it has one.
pub(super) fn producer(headers: &HeaderMap) -> Result<Option<ProducerTag>, Error> {
    let id = text(headers, &PRODUCER_ID)?;
    let epoch = text(headers, &PRODUCER_EPOCH)?;
    let seq = text(headers, &PRODUCER_SEQ)?;
    Ok(ProducerTag::parse(id, epoch, seq)?)
}

pub(super) fn set_next_offset(headers: &mut HeaderMap, offset: Offset) {
    reply::set(headers, STREAM_NEXT_OFFSET, offset.to_string());
}

pub(super) fn set_closed(headers: &mut HeaderMap, closed: bool) {
    if closed {
        headers.insert(STREAM_CLOSED, TRUE);
    }
}

pub(super) fn set_up_to_date(headers: &mut HeaderMap) {
    headers.insert(STREAM_UP_TO_DATE, TRUE);
}
