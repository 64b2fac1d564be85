//! An event as it is kept: what it is about, and where its content is.
//!
//! A map of 0 id, 1 kind, 2 came at in ms, 3 stream id, 4 position of its content in the stream,
//! 5 its length, 6 subject, 7 key of the content, 8 trace id and span id, 24 bytes, of what brought it.
//! It has either 3 and 4 or 7.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset};

use crate::codec::{self, Record, RecordError};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// The name that its sender gave it, or that it was given.
    pub id: Arc<str>,
    /// What has happened, in the words of its face.
    pub kind: Arc<str>,
    /// What it is about. Events of one subject are delivered one after another, where a hook's
    /// policy says so; those without one share a lane.
    pub subject: Option<Arc<str>>,
    /// When it came.
    pub at: Millis,
    pub place: EventPlace,
    /// The trace that it came as a part of: trace id and span id.
    pub trace: Option<[u8; 24]>,
}

/// Where the content of an event is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventPlace {
    /// A part of a stream.
    Stream { stream: StreamId, from: Offset, len: u64 },
    /// The value of a key.
    Key { key: Bytes, len: u64 },
}

impl EventPlace {
    /// How many bytes the content is.
    pub fn len(&self) -> u64 {
        match self {
            EventPlace::Stream { len, .. } | EventPlace::Key { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Record for EventRecord {
    fn encode(&self) -> Bytes {
        let (stream, from, key) = match &self.place {
            EventPlace::Stream { stream, from, .. } => {
                (Some(stream.0), Some(from.position()), None)
            }
            EventPlace::Key { key, .. } => (None, None, Some(&**key)),
        };
        let fields = EventFields {
            id: &self.id,
            kind: &self.kind,
            at: self.at.0,
            stream,
            from,
            len: self.place.len(),
            subject: self.subject.as_deref(),
            key,
            trace: self.trace.map(ByteArray::from),
        };
        codec::write(96, &fields)
    }

    fn decode(value: &[u8]) -> Result<EventRecord, RecordError> {
        codec::read::<EventFields<'_>, _>("event", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct EventFields<'a> {
    #[n(0)]
    id: &'a str,
    #[n(1)]
    kind: &'a str,
    #[cbor(n(2), default)]
    at: u64,
    #[n(3)]
    stream: Option<u64>,
    #[n(4)]
    from: Option<u64>,
    #[cbor(n(5), default)]
    len: u64,
    #[n(6)]
    subject: Option<&'a str>,
    #[cbor(n(7), with = "minicbor::bytes")]
    key: Option<&'a [u8]>,
    #[n(8)]
    trace: Option<ByteArray<24>>,
}

impl TryFrom<EventFields<'_>> for EventRecord {
    type Error = &'static str;

    fn try_from(fields: EventFields<'_>) -> Result<EventRecord, &'static str> {
        let len = fields.len;
        let place = match (fields.stream, fields.from, fields.key) {
            (Some(stream), Some(from), None) => {
                EventPlace::Stream { stream: StreamId(stream), from: Offset::new(from), len }
            }
            (None, None, Some(key)) => EventPlace::Key { key: Bytes::copy_from_slice(key), len },
            _ => return Err("no place"),
        };
        if fields.kind.is_empty() {
            return Err("no kind");
        }
        Ok(EventRecord {
            id: fields.id.into(),
            kind: fields.kind.into(),
            subject: fields.subject.map(Into::into),
            at: Millis(fields.at),
            place,
            trace: fields.trace.map(Into::into),
        })
    }
}

#[cfg(test)]
mod tests {
    use reveille_core::Tenant;
    use reveille_core::delivery::hook::FaceId;
    use reveille_core::delivery::id::EventNo;

    use super::super::*;
    use super::*;
    use crate::golden::{check, check_range, check_record, decode};

    fn event() -> EventRecord {
        EventRecord {
            id: "evt-1".into(),
            kind: "webhook.github.push".into(),
            subject: None,
            at: Millis(1_700_000_000_000),
            place: place(500, 70_000),
            trace: None,
        }
    }

    fn place(from: u64, len: u64) -> EventPlace {
        EventPlace::Stream { stream: StreamId(4), from: Offset::new(from), len }
    }

    #[test]
    fn events_have_these_bytes() {
        let first = EventRecord { id: "".into(), place: place(0, 0), ..event() };
        let key = EventPlace::Key { key: Bytes::from_static(b"\x20f"), len: 3 };
        let subject = Some("doc".into());
        let keyed =
            EventRecord { id: "a".into(), kind: "b".into(), subject, place: key, ..event() };
        for (event, hex) in [
            (
                event(),
                "\
            a600656576742d310173776562686f6f6b2e6769746875622e70757368021b0000018bcfe5680003\
            04041901f4051a00011170",
            ),
            (
                first,
                "a600600173776562686f6f6b2e6769746875622e70757368021b0000018bcfe56800030404000500",
            ),
            (keyed, "a6006161016162021b0000018bcfe5680005030663646f6307422066"),
            (
                EventRecord { id: "a".into(), trace: Some([7; 24]), place: place(0, 0), ..event() },
                "\
            a70061610173776562686f6f6b2e6769746875622e70757368021b0000018bcfe5680003040400050008\
            5818070707070707070707070707070707070707070707070707",
            ),
        ] {
            check_record(&event, hex);
        }
    }

    #[test]
    fn what_cannot_be_is_damage() {
        let found = decode::<EventRecord>("a400616101616203040400").unwrap();
        let expected = EventRecord {
            id: "a".into(),
            kind: "b".into(),
            at: Millis(0),
            place: place(0, 0),
            ..event()
        };
        assert_eq!(found, expected);
        for (hex, why) in [
            ("a0", "no id"),
            ("a1006161", "no kind"),
            ("a40061610160030404 00", "an empty kind"),
            ("a2006161016162", "no place"),
            ("a300616101616203 04", "half a place"),
            ("a5006161016162030404000741 20", "two places"),
        ] {
            assert!(decode::<EventRecord>(&hex.replace(' ', "")).is_err(), "{why}");
        }
    }

    #[test]
    fn keys_have_these_bytes() {
        let (face, tenant, no) = (FaceId(4), Tenant::parse("acme").unwrap(), EventNo(258));
        check(&event_key(face, &tenant, no), "0e0461636d65000000000000000102");
        check(&fan_out_key(face, &tenant, no), "160461636d65000000000000000102");
        let (from, end) = ("0e0461636d65000000000000000102", "0e0461636d6501");
        check_range(event_keys(face, &tenant, no), from, end);
        check_range(all_event_keys(), "0e", "0f");
        check_range(fan_out_keys(face, &tenant), "160461636d6500", "160461636d6501");
    }

    #[test]
    fn keys_read_back_and_stand_in_order() {
        let (face, tenant) = (FaceId(9), Tenant::default_tenant());
        let key = event_key(face, &tenant, EventNo(9));
        assert_eq!(parse_event_no(&key), Some(EventNo(9)));
        assert_eq!(parse_event_source(&key), Some((face, tenant.clone())));
        let (from, to) = event_keys(face, &tenant, EventNo(9));
        assert!(from <= key && key < to && event_key(face, &tenant, EventNo(8)) < from);
        assert_eq!(parse_event_no(b"\x0eshort"), None);
        assert_eq!(parse_event_source(b"\x0e\x04Acme\0"), None);
        assert_eq!(parse_event_source(b"\x0e"), None);
        assert_eq!(parse_event_source(b"\x0f"), None);
    }
}
