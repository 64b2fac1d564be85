//! How far an append's fan-out to subscriptions has come.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | array | watermarks: `[youngest subscription id, tail before the append or null]` |
//! | 1 | array | the walk: `[woken up to this subscription id, goes up to this one]` |
//! | 2 | array | another such pair: those who are woken again when the walk ends |

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Offset;
use reveille_core::fan_out::{FanOutCursor, IdRange, Watermark};
use reveille_core::subscription::SubscriptionId;

use crate::codec::{self, Record, RecordError};

impl Record for FanOutCursor {
    fn encode(&self) -> Bytes {
        codec::write(64, &CursorFields::from(self))
    }

    fn decode(value: &[u8]) -> Result<FanOutCursor, RecordError> {
        codec::read::<CursorFields, _>("fan-out cursor", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct CursorFields {
    #[cbor(n(0), default)]
    marks: Vec<(u64, Option<u64>)>,
    #[n(1)]
    walk: (u64, u64),
    #[n(2)]
    again: Option<(u64, u64)>,
}

impl From<&FanOutCursor> for CursorFields {
    fn from(cursor: &FanOutCursor) -> CursorFields {
        let range = |range: IdRange| (range.after.0, range.through.0);
        let mark = |mark: &Watermark| (mark.youngest.0, mark.before.map(Offset::position));
        CursorFields {
            marks: cursor.marks.iter().map(mark).collect(),
            walk: range(cursor.walk),
            again: cursor.again.map(range),
        }
    }
}

impl From<CursorFields> for FanOutCursor {
    fn from(fields: CursorFields) -> FanOutCursor {
        let range = |(after, through)| IdRange {
            after: SubscriptionId(after),
            through: SubscriptionId(through),
        };
        let mark = |(youngest, before): (u64, Option<u64>)| Watermark {
            youngest: SubscriptionId(youngest),
            before: before.map(Offset::new),
        };
        FanOutCursor {
            marks: fields.marks.into_iter().map(mark).collect(),
            walk: range(fields.walk),
            again: fields.again.map(range),
        }
    }
}
