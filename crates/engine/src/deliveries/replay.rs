//! Replays: many dead letters are made again, or discarded, in slices from the due index.
//!
//! Whoever asks sees first what there is: a preview counts the selection and remembers what it was.
//! The replay is for the same selection, as of then: a letter that is made again and dies again has
//! died later, so none is made again twice, whatever crashes in between. What is discarded is told in
//! the same way, and is over at once.

mod preview;

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::delivery::Phase;
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::replay::{
    LetterAction, ReplayRecord, ReplayResult, ReplaySelection, ReplayTurns,
};
use reveille_core::key_range::above;
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::txn::ReadError;
use reveille_schema::Record;
use reveille_schema::deliveries::DeliveryTimer;
use reveille_schema::keys::{self, TenantDeadLetter};
use reveille_store::state::Reader;

pub use preview::{PreviewedHook, ReplayCount, ReplayPreview, ReplayPreviews, ReplayRequest};

use super::dead_letter::{self, LetterState};
use super::delivery::{self, DeliveryTxn, Retried, RetryBy};
use super::index::HookIndex;
use super::send::delivery_record;
use crate::app::{App, Txn};
use crate::effect::Effect;
use crate::limits::REPLAY_SLICE;
use crate::records::{ReadRecord, Scan};

/// Begins a replay.
#[derive(Debug, Clone)]
pub struct StartReplay {
    pub tenant: Tenant,
    pub selection: ReplaySelection,
    pub total: u64,
    pub actor: Arc<str>,
    pub reason: Option<Arc<str>>,
}

impl Command<App> for StartReplay {
    type Answer = ReplayRecord;
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<ReplayRecord, Never> {
        let StartReplay { tenant, selection, total, actor, reason } = self;
        let (id, now) = (txn.take_id(), txn.now());
        let (actor, reason) = (actor.clone(), reason.clone());
        let replay = ReplayRecord::new(id, now, actor, reason, selection.clone(), *total);
        txn.set(keys::replay(tenant, id), replay.encode());
        txn.set_delivery_timer(now, &DeliveryTimer::Replay(tenant.clone(), id));
        Ok(Ok(replay))
    }

    fn needs_room(&self) -> bool {
        true
    }
}

/// A delivery that a replay has made has come to its end.
pub(super) fn count_end(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    id: u64,
    delivery: &reveille_core::delivery::Delivery,
) -> Result<(), ReadError> {
    let key = keys::replay(tenant, id);
    if let Some(mut replay) = txn.read(&key, ReplayRecord::decode)? {
        let standing = delivery.standing();
        replay.count(standing, txn.now());
        txn.set(key, replay.encode());
        if let Some(result) = ReplayResult::of(standing) {
            txn.effect(Effect::CountReplayed { result, count: 1 });
        }
    }
    Ok(())
}

/// The next dead letters of a replay, as they were found outside of the lock.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplayLook {
    /// Where the look began.
    after: Bytes,
    found: Vec<(Bytes, DeliveryId)>,
    /// The last key that was looked at.
    last: Bytes,
    complete: bool,
}

impl ReplayLook {
    pub(super) fn begin(
        mut reader: &Reader,
        tenant: &Tenant,
        id: u64,
    ) -> Result<ReplayLook, Damaged> {
        let replay = reader.read(&keys::replay(tenant, id), ReplayRecord::decode)?;
        let Some(replay) = replay.filter(|it| !it.all_made) else {
            return Ok(ReplayLook { complete: true, ..ReplayLook::default() });
        };
        let mut look = ReplayLook {
            after: replay.after.clone(),
            last: replay.after.clone(),
            ..ReplayLook::default()
        };
        let mut letters = Letters::new(reader, tenant, &replay.selection, &replay.after);
        while look.found.len() < REPLAY_SLICE && letters.seen < REPLAY_SLICE * 8 {
            let Some((key, id)) = letters.next()? else {
                look.complete = true;
                break;
            };
            look.last = key.clone();
            look.found.extend(id.map(|id| (key, id)));
        }
        Ok(look)
    }

    pub(super) fn weight(&self) -> usize {
        self.found.len() * 512
    }
}

/// Makes the next dead letters of a replay again, or discards them.
pub(super) fn fire(
    txn: &mut Txn<'_>,
    entry: &Bytes,
    tenant: &Tenant,
    id: u64,
    look: &ReplayLook,
) -> Result<(), ReadError> {
    let key = keys::replay(tenant, id);
    let replay = txn.read(&key, ReplayRecord::decode)?;
    let Some(mut replay) = replay.filter(|it| !it.all_made) else {
        txn.remove(entry);
        return Ok(());
    };
    // Somebody else was faster: what was found is old.
    if replay.after != look.after {
        return Ok(());
    }
    let records: Vec<Bytes> = look.found.iter().map(|(_, id)| keys::delivery(*id)).collect();
    txn.want(&records)?;
    let hooks = look.found.iter().map(|(_, id)| id.hook).collect();
    txn.counts_and(&hooks, [])?;
    let discards = replay.selection.action == LetterAction::Discard;
    let by = Some(RetryBy { replay: id, original: replay.selection.original });
    let mut turns = ReplayTurns::default();
    let done = txn.gather_slice(&look.found, |txn, (_, letter)| {
        if discards {
            let is_discarded = dead_letter::discard(txn, tenant, *letter)?;
            turns.made += u64::from(is_discarded);
            turns.not_dead += u64::from(!is_discarded);
            return Ok(());
        }
        let hook = HookIndex::of_txn(txn).get(letter.hook).filter(|hook| hook.tenant == *tenant);
        let Some(hook) = hook else {
            turns.hook_gone += 1;
            return Ok(());
        };
        match delivery::retry(txn, hook, *letter, by)? {
            Retried::Made(_) => turns.made += 1,
            Retried::NotDead => turns.not_dead += 1,
            Retried::VersionGone => turns.version_gone += 1,
        }
        Ok(())
    })?;
    let is_whole = done == look.found.len();
    let last = look.found.get(done.saturating_sub(1)).map(|(key, _)| key);
    let after = if is_whole { look.last.clone() } else { last.cloned().unwrap_or_default() };
    let all_made = is_whole && look.complete;
    // What it has made may have ended in this very step, in a lane that was gone.
    replay = txn.read(&key, ReplayRecord::decode)?.unwrap_or(replay);
    replay.advance(&turns, after, all_made, txn.now());
    if turns.skipped() > 0 && !discards {
        let (result, count) = (ReplayResult::Skipped, turns.skipped());
        txn.effect(Effect::CountReplayed { result, count });
    }
    txn.set(key, replay.encode());
    if all_made {
        txn.remove(entry);
    }
    Ok(())
}

/// A walk over the dead letters of a selection, newest first.
struct Letters<'a> {
    reader: &'a Reader,
    scan: Scan<'a>,
    selection: &'a ReplaySelection,
    seen: usize,
}

impl<'a> Letters<'a> {
    fn new(
        reader: &'a Reader,
        tenant: &Tenant,
        selection: &'a ReplaySelection,
        after: &Bytes,
    ) -> Letters<'a> {
        let (first, to) = keys::tenant_dead_letters(tenant, selection.from, selection.to);
        let from = if after.is_empty() { first } else { above(after) };
        Letters { reader, scan: Scan::new(reader, from, to), selection, seen: 0 }
    }

    /// The next key, and the letter if it is one of the selection.
    fn next(&mut self) -> Result<Option<(Bytes, Option<DeliveryId>)>, Damaged> {
        let Some(pair) = self.scan.next() else { return Ok(None) };
        let (key, value) = pair?;
        self.seen += 1;
        let letter = TenantDeadLetter::parse(&key);
        let letter = letter.filter(|it| {
            LetterState::of(&value) == LetterState::Dead && self.selection.has(it.died_at, it.id)
        });
        let Some(TenantDeadLetter { id, .. }) = letter else { return Ok(Some((key, None))) };
        if let Some(wanted) = self.selection.why {
            let record = delivery_record(self.reader, id)?;
            let is_so = record.is_some_and(
                |it| matches!(it.delivery.phase, Phase::Dead { why, .. } if why == wanted),
            );
            return Ok(Some((key, is_so.then_some(id))));
        }
        Ok(Some((key, Some(id))))
    }
}

const REPLAY: &str = "rpl_";
const DISCARD: &str = "dsc_";

/// The name that the world knows a replay by.
pub fn replay_name(id: u64) -> String {
    action_name(LetterAction::Replay, id)
}

/// The same of one that is for either.
pub fn action_name(action: LetterAction, id: u64) -> String {
    let prefix = if action == LetterAction::Replay { REPLAY } else { DISCARD };
    format!("{prefix}{id:016x}")
}

/// The replay of this name, and what it does.
pub fn replay_named(name: &str) -> Option<(LetterAction, u64)> {
    let (action, digits) = match (name.strip_prefix(REPLAY), name.strip_prefix(DISCARD)) {
        (Some(digits), _) => (LetterAction::Replay, digits),
        (None, digits) => (LetterAction::Discard, digits?),
    };
    let id = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16)?;
    Some((action, id))
}
