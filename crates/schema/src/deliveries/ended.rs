//! A hook that has ended, for the dead letters that have outlived it.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | bytes | the hook as it was last |
//! | 1 | integer | ended at, ms |
//! | 2 | bool | deliveries that had no end become dead letters; absent: they are forgotten |
//! | 3 | bytes | the key up to which its deliveries were looked through |
//! | 4 | bool | all were, and only dead letters are left |

use bytes::Bytes;
use minicbor::bytes::ByteSlice;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::delivery::hook::{EndedHook, Hook, OpenDeliveries};

use crate::codec::{self, Record, RecordError};

impl Record for EndedHook {
    fn encode(&self) -> Bytes {
        let hook = self.hook.encode();
        let fields = EndedHookFields {
            hook: (&hook[..]).into(),
            ended_at: self.ended_at.0,
            buries: self.open == OpenDeliveries::Bury,
            after: (&self.after[..]).into(),
            is_cleared: self.is_cleared,
        };
        codec::write(256, &fields)
    }

    fn decode(value: &[u8]) -> Result<EndedHook, RecordError> {
        codec::read::<EndedHookFields<'_>, _>("ended hook", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct EndedHookFields<'a> {
    #[b(0)]
    hook: &'a ByteSlice,
    #[n(1)]
    ended_at: u64,
    #[cbor(n(2), skip_if = "codec::is_false")]
    buries: bool,
    #[b(3)]
    after: &'a ByteSlice,
    #[cbor(n(4), skip_if = "codec::is_false")]
    is_cleared: bool,
}

impl TryFrom<EndedHookFields<'_>> for EndedHook {
    type Error = &'static str;

    fn try_from(fields: EndedHookFields<'_>) -> Result<EndedHook, &'static str> {
        Ok(EndedHook {
            hook: Hook::decode(fields.hook).map_err(|_| "no hook")?,
            ended_at: Millis(fields.ended_at),
            open: if fields.buries { OpenDeliveries::Bury } else { OpenDeliveries::Drop },
            after: Bytes::copy_from_slice(fields.after),
            is_cleared: fields.is_cleared,
        })
    }
}
