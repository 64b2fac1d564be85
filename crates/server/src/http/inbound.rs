//! Bodies of requests: bounded in size, in time, and in what all of them together may hold.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_engine::{Engine, Permit};
use reveille_kernel::limits::SMALL_BODY_BYTES;

use super::clock;
use super::error::RequestError;

/// The next part of a body must come within this time.
const PART_WITHIN_MS: u64 = 15_000;
/// A whole body may take this long, and longer by its size at the slowest rate.
const BODY_WITHIN_MS: u64 = 30_000;
const BYTES_PER_MS_MIN: u64 = 32;
/// What a body without a length is first given room for; then twice as much, and so on.
const FIRST_ROOM: usize = 16 << 10;

/// A body in memory, with the right to be there.
#[derive(Debug)]
pub(crate) struct InboundBody {
    pub(crate) bytes: Bytes,
    _permits: Vec<Permit>,
}

/// Reads a body of at most `max` bytes once it is the tenant's turn: bodies that wait for a turn
/// would keep the memory from those whose turn it is.
pub(crate) async fn read_in_turn(
    engine: &Engine,
    tenant: &Tenant,
    headers: &HeaderMap,
    body: Incoming,
    max: usize,
) -> Result<InboundBody, RequestError> {
    engine.turn(tenant).await?;
    read(engine, headers, body, max).await
}

/// Reads a body of at most `max` bytes.
pub(crate) async fn read(
    engine: &Engine,
    headers: &HeaderMap,
    body: Incoming,
    max: usize,
) -> Result<InboundBody, RequestError> {
    if body.is_end_stream() {
        return Ok(InboundBody { bytes: Bytes::new(), _permits: Vec::new() });
    }
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<usize>().ok());
    if announced.is_some_and(|len| len > max) {
        return Err(RequestError::BodyTooLarge { max });
    }
    let size = u64::try_from(announced.unwrap_or(max)).unwrap_or(u64::MAX);
    let within = BODY_WITHIN_MS + size / BYTES_PER_MS_MIN;
    let reading = collect(engine, body, announced, max);
    clock::within(engine.clock().as_ref(), within, reading)
        .await
        .unwrap_or(Err(RequestError::BodyTooSlow))
}

async fn collect(
    engine: &Engine,
    mut body: Incoming,
    announced: Option<usize>,
    max: usize,
) -> Result<InboundBody, RequestError> {
    let mut permits = Vec::new();
    let mut room = 0;
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    loop {
        let next = clock::within(engine.clock().as_ref(), PART_WITHIN_MS, body.frame());
        let Some(frame) = next.await.ok_or(RequestError::BodyTooSlow)? else { break };
        let Ok(part) = frame.map_err(|_| RequestError::BodyIncomplete)?.into_data() else {
            continue;
        };
        let len = first.as_ref().map_or(all.len(), Bytes::len) + part.len();
        if len > max {
            return Err(RequestError::BodyTooLarge { max });
        }
        // Room is given when something has come: announcing a body and sending nothing of it
        // keeps nobody out.
        while len > room {
            let more = next_room(room, announced);
            permits.push(engine.admit(more).await?);
            room += more;
        }
        // A body that comes in one part is not copied.
        match first.take() {
            None if all.is_empty() => first = Some(part),
            None => all.extend_from_slice(&part),
            Some(begin) => {
                all.reserve(room.max(len));
                all.extend_from_slice(&begin);
                all.extend_from_slice(&part);
            }
        }
    }
    let bytes = first.unwrap_or_else(|| all.freeze());
    Ok(InboundBody { bytes, _permits: permits })
}

/// How much room a body gets next. Without an announcement it doubles. A large body gets all that
/// it announced once its beginning has come: many that are half there would wait for each other.
fn next_room(room: usize, announced: Option<usize>) -> usize {
    let rest = announced.map(|len| len.saturating_sub(room).max(1));
    match rest {
        _ if room == 0 => rest.unwrap_or(FIRST_ROOM).min(FIRST_ROOM),
        Some(rest) if room + rest > SMALL_BODY_BYTES => rest,
        Some(rest) => rest.min(room),
        None => room,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_follows_what_has_come() {
        assert_eq!(next_room(0, Some(100)), 100);
        assert_eq!(next_room(0, Some(64 << 10)), FIRST_ROOM);
        assert_eq!(next_room(FIRST_ROOM, Some(64 << 10)), FIRST_ROOM);
        assert_eq!(next_room(0, Some(10 << 20)), FIRST_ROOM);
        assert_eq!(next_room(FIRST_ROOM, Some(10 << 20)), (10 << 20) - FIRST_ROOM);
        assert_eq!(next_room(0, None), FIRST_ROOM);
        assert_eq!(next_room(64 << 10, None), 64 << 10);
    }
}
