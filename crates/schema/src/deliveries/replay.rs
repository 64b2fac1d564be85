//! A replay of dead letters.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | integer | number |
//! | 1 | integer | began at, ms |
//! | 2 | text | who asked for it |
//! | 3 | text | why |
//! | 4 | integer | of this hook |
//! | 5 | text | that died for this reason |
//! | 6 | integer | that died from then on, ms |
//! | 7 | integer | that died before, ms |
//! | 8 | bytes | these alone: hook `u64`, event `u64`, round `u16` of each |
//! | 9 | integer | how many there were |
//! | 10 | integer | made again |
//! | 11 | integer | skipped |
//! | 12 | integer | succeeded |
//! | 13 | integer | died again |
//! | 14 | integer | dropped |
//! | 15 | bytes | the key after which it goes on |
//! | 16 | bool | all have had their turn |
//! | 17 | integer | ended at, ms |
//! | 18 | bool | they follow the version of their hook that they had |
//! | 19 | integer | skipped because their hook had ended; absent: none |
//! | 20 | integer | skipped because the version that they were to follow is not kept; absent: none |
//! | 21 | bool | they are discarded, and not made again |
//! | 22 | bytes | of these hooks, `u64` of each, if there are several |

use bytes::{BufMut as _, Bytes, BytesMut};
use minicbor::bytes::ByteSlice;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::delivery::DeadReason;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::replay::{LetterAction, ReplayRecord, ReplaySelection};

use super::{parse_id, put_id};
use crate::codec::{self, Record, RecordError};

/// The bytes of a delivery's number.
const ID_BYTES: usize = 18;

impl Record for ReplayRecord {
    fn encode(&self) -> Bytes {
        let mut ids = BytesMut::with_capacity(self.selection.ids.len() * ID_BYTES);
        for id in &self.selection.ids {
            put_id(&mut ids, *id);
        }
        let mut hooks = BytesMut::new();
        let hook = match &self.selection.hooks[..] {
            [hook] => Some(hook.0),
            several => {
                several.iter().for_each(|hook| hooks.put_u64(hook.0));
                None
            }
        };
        let fields = ReplayFields {
            id: self.id,
            begun_at: self.begun_at.0,
            actor: &self.actor,
            reason: self.reason.as_deref(),
            hook,
            why: self.selection.why.map(DeadReason::code),
            from: self.selection.from.0,
            to: self.selection.to.0,
            ids: (&ids[..]).into(),
            total: self.total,
            made: self.made,
            skipped: self.skipped,
            succeeded: self.succeeded,
            failed: self.failed,
            dropped: self.dropped,
            after: (&self.after[..]).into(),
            all_made: self.all_made,
            ended_at: self.ended_at.map(|at| at.0),
            original: self.selection.original,
            hook_gone: Some(self.hook_gone).filter(|count| *count > 0),
            version_gone: Some(self.version_gone).filter(|count| *count > 0),
            discard: self.selection.action == LetterAction::Discard,
            hooks: Some((&hooks[..]).into()).filter(|hooks: &&ByteSlice| !hooks.is_empty()),
        };
        codec::write(192, &fields)
    }

    fn decode(value: &[u8]) -> Result<ReplayRecord, RecordError> {
        codec::read::<ReplayFields<'_>, _>("replay", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct ReplayFields<'a> {
    #[n(0)]
    id: u64,
    #[n(1)]
    begun_at: u64,
    #[n(2)]
    actor: &'a str,
    #[n(3)]
    reason: Option<&'a str>,
    #[n(4)]
    hook: Option<u64>,
    #[n(5)]
    why: Option<&'a str>,
    #[n(6)]
    from: u64,
    #[n(7)]
    to: u64,
    #[b(8)]
    ids: &'a ByteSlice,
    #[n(9)]
    total: u64,
    #[n(10)]
    made: u64,
    #[n(11)]
    skipped: u64,
    #[n(12)]
    succeeded: u64,
    #[n(13)]
    failed: u64,
    #[n(14)]
    dropped: u64,
    #[b(15)]
    after: &'a ByteSlice,
    #[n(16)]
    all_made: bool,
    #[n(17)]
    ended_at: Option<u64>,
    #[cbor(n(18), skip_if = "codec::is_false")]
    original: bool,
    #[cbor(n(19), decode_with = "codec::some")]
    hook_gone: Option<u64>,
    #[cbor(n(20), decode_with = "codec::some")]
    version_gone: Option<u64>,
    #[cbor(n(21), skip_if = "codec::is_false")]
    discard: bool,
    #[b(22)]
    hooks: Option<&'a ByteSlice>,
}

impl TryFrom<ReplayFields<'_>> for ReplayRecord {
    type Error = &'static str;

    fn try_from(fields: ReplayFields<'_>) -> Result<ReplayRecord, &'static str> {
        let reason = |code| DeadReason::parse(code).ok_or("an unknown reason");
        let ids = fields.ids.chunks(ID_BYTES).map(|id| parse_id(id).ok_or("no delivery"));
        let several = fields.hooks.map(|hooks| hooks.as_chunks().0).unwrap_or_default();
        let several = several.iter().map(|number| u64::from_be_bytes(*number));
        let selection = ReplaySelection {
            action: if fields.discard { LetterAction::Discard } else { LetterAction::Replay },
            hooks: fields.hook.into_iter().chain(several).map(HookId).collect(),
            why: fields.why.map(reason).transpose()?,
            from: Millis(fields.from),
            to: Millis(fields.to),
            ids: ids.collect::<Result<_, _>>()?,
            original: fields.original,
        };
        Ok(ReplayRecord {
            id: fields.id,
            begun_at: Millis(fields.begun_at),
            actor: fields.actor.into(),
            reason: fields.reason.map(Into::into),
            selection,
            total: fields.total,
            made: fields.made,
            skipped: fields.skipped,
            succeeded: fields.succeeded,
            failed: fields.failed,
            dropped: fields.dropped,
            after: Bytes::copy_from_slice(fields.after),
            all_made: fields.all_made,
            ended_at: fields.ended_at.map(Millis),
            hook_gone: fields.hook_gone.unwrap_or(0),
            version_gone: fields.version_gone.unwrap_or(0),
        })
    }
}
