//! Bodies of requests: bounded in size, in time, and in what all of them together may hold.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use reveille_core::{Millis, Tenant};
use reveille_engine::doors::Clock;
use reveille_engine::{Engine, Permit};
use reveille_kernel::limits::SMALL_BODY_BYTES;
use serde_json::{Map, Value};

use super::clock;
use super::error::RequestError;
use super::fields::{self, FieldError};
use crate::Server;

/// The next part of a body must come within this time.
const PART_WITHIN_MS: u64 = 20_000;
/// A whole body may take this long, and longer by what has come of it at the slowest rate.
const BODY_WITHIN_MS: u64 = 30_000;
const BYTES_PER_MS_MIN: u64 = 32;
/// A body that says how something is to be: a larger one asks for nothing that can be had.
pub(crate) const OBJECT_BYTES_MAX: usize = 64 << 10;
/// The least that a body is given room for when something of it has come.
const FIRST_ROOM: usize = 1 << 10;

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
    read(engine, tenant, headers, body, max).await
}

/// Reads a body that says how something is to be.
pub(crate) async fn read_object<E: From<RequestError> + From<FieldError>>(
    server: &Server,
    tenant: &Tenant,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Map<String, Value>, E> {
    let max = OBJECT_BYTES_MAX.min(server.config.max_body_bytes);
    let body = read(&server.engine, tenant, headers, body, max).await?;
    Ok(fields::parse_object(&body.bytes)?)
}

/// The same where nothing has to be said: no body is an object without fields.
pub(crate) async fn read_optional_object<E: From<RequestError> + From<FieldError>>(
    server: &Server,
    tenant: &Tenant,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Map<String, Value>, E> {
    let max = OBJECT_BYTES_MAX.min(server.config.max_body_bytes);
    let body = read(&server.engine, tenant, headers, body, max).await?;
    match body.bytes.trim_ascii() {
        [] => Ok(Map::new()),
        bytes => Ok(fields::parse_object(bytes)?),
    }
}

/// Reads a body of at most `max` bytes. Whose it is must be known: strangers send nothing.
pub(crate) async fn read(
    engine: &Engine,
    tenant: &Tenant,
    headers: &HeaderMap,
    mut body: Incoming,
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
    let mut permits = Vec::new();
    let (mut len, mut room) = (0, 0);
    let mut first: Option<Bytes> = None;
    let mut all = BytesMut::new();
    let mut pace = Pace::new(engine.clock().as_ref());
    while let Some(part) = pace.next(&mut body).await? {
        len += part.len();
        if len > max {
            return Err(RequestError::BodyTooLarge { max });
        }
        // Room is given for what has come: announcing a body and sending nothing of it keeps
        // nobody out.
        if len > room {
            let wanted = room_for(len, announced);
            permits.push(engine.admit(tenant, wanted - room).await?);
            room = wanted;
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

/// How fast a body must come: whoever sends a byte now and then would stay for ever.
struct Pace<'a> {
    clock: &'a dyn Clock,
    started: Millis,
    received: u64,
}

impl Pace<'_> {
    fn new(clock: &dyn Clock) -> Pace<'_> {
        Pace { clock, started: clock.now(), received: 0 }
    }

    /// The next part, if there is one and it comes in time.
    async fn next(&mut self, body: &mut Incoming) -> Result<Option<Bytes>, RequestError> {
        loop {
            let within_ms = self.within_ms();
            let frame = clock::within(self.clock, within_ms, body.frame()).await;
            let Some(frame) = frame.ok_or(RequestError::BodyTooSlow)? else { return Ok(None) };
            let frame = frame.map_err(|_| RequestError::BodyIncomplete)?;
            let Ok(part) = frame.into_data() else { continue };
            self.received += u64::try_from(part.len()).unwrap_or(0);
            // A body that is always there in time, but only just, must come to its end as well.
            if self.within_ms() == 0 {
                return Err(RequestError::BodyTooSlow);
            }
            return Ok(Some(part));
        }
    }

    /// How long the next part may take.
    fn within_ms(&self) -> u64 {
        let all_ms = BODY_WITHIN_MS + self.received / BYTES_PER_MS_MIN;
        PART_WITHIN_MS.min((self.started + all_ms).since(self.clock.now()))
    }
}

/// How much room a body has when so much of it has come: twice as much each time. A large body gets
/// all that it announced once it has shown to be one: many that are half there would wait for each
/// other.
fn room_for(len: usize, announced: Option<usize>) -> usize {
    let doubled = len.next_power_of_two().max(FIRST_ROOM);
    match announced {
        Some(all) if len > SMALL_BODY_BYTES => all.max(len),
        Some(all) => doubled.min(all.max(len)),
        None => doubled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_follows_what_has_come() {
        assert_eq!(room_for(1, Some(100)), 100);
        assert_eq!(room_for(1, Some(10 << 20)), FIRST_ROOM);
        assert_eq!(room_for(1_025, Some(10 << 20)), 2_048);
        assert_eq!(room_for(40_000, Some(50_000)), 50_000);
        assert_eq!(room_for(64 << 10, Some(10 << 20)), 64 << 10);
        assert_eq!(room_for((64 << 10) + 1, Some(10 << 20)), 10 << 20);
        assert_eq!(room_for(1, None), FIRST_ROOM);
        assert_eq!(room_for((64 << 10) + 1, None), 128 << 10);
    }
}
