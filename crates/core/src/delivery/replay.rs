//! A replay: dead letters that are made again, or discarded, because somebody asked for all of them.

use std::sync::Arc;

use bytes::Bytes;

use super::DeadReason;
use super::hook::{HookId, Standing};
use super::id::DeliveryId;
use crate::time::Millis;

/// What is done with dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LetterAction {
    /// They are made again.
    #[default]
    Replay,
    /// They are set aside for good.
    Discard,
}

/// Which dead letters of a tenant, and what is done with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplaySelection {
    pub action: LetterAction,
    /// Those of these hooks, in order; of all, if there are none.
    pub hooks: Vec<HookId>,
    /// Those that died for this reason.
    pub why: Option<DeadReason>,
    /// Those that died from then on.
    pub from: Millis,
    /// Those that died before. A letter that is made again and dies again does so later than this,
    /// so none is made again twice.
    pub to: Millis,
    /// These alone, if there are any.
    pub ids: Vec<DeliveryId>,
    /// Whether they follow the version of their hook that they had, and not the hook as it is.
    pub original: bool,
}

impl ReplaySelection {
    /// Whether one that died at a time is among them, as far as that can be told without its record.
    pub fn has(&self, died_at: Millis, id: DeliveryId) -> bool {
        self.from <= died_at
            && died_at < self.to
            && (self.hooks.is_empty() || self.hooks.binary_search(&id.hook).is_ok())
            && (self.ids.is_empty() || self.ids.contains(&id))
    }
}

/// What has become of dead letters whose turn it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayTurns {
    /// Made again, or discarded.
    pub made: u64,
    /// They were not dead letters any more.
    pub not_dead: u64,
    pub hook_gone: u64,
    pub version_gone: u64,
}

impl ReplayTurns {
    /// How many were not made again.
    pub fn skipped(&self) -> u64 {
        self.not_dead + self.hook_gone + self.version_gone
    }
}

/// What has become of a dead letter that a replay was to make again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayResult {
    Succeeded,
    Failed,
    Dropped,
    /// It was not made again.
    Skipped,
}

impl ReplayResult {
    pub const ALL: [ReplayResult; 4] = [
        ReplayResult::Succeeded,
        ReplayResult::Failed,
        ReplayResult::Dropped,
        ReplayResult::Skipped,
    ];

    /// What a delivery has come to that a replay has made; `None` while it has no end.
    pub fn of(standing: Standing) -> Option<ReplayResult> {
        match standing {
            Standing::Delivered => Some(ReplayResult::Succeeded),
            Standing::Dead => Some(ReplayResult::Failed),
            Standing::Dropped => Some(ReplayResult::Dropped),
            Standing::Pending | Standing::Failed => None,
        }
    }

    /// The word that the world knows it by.
    pub fn code(self) -> &'static str {
        match self {
            ReplayResult::Succeeded => "succeeded",
            ReplayResult::Failed => "failed",
            ReplayResult::Dropped => "dropped",
            ReplayResult::Skipped => "skipped",
        }
    }
}

/// A replay as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRecord {
    pub id: u64,
    pub begun_at: Millis,
    /// Who asked for it.
    pub actor: Arc<str>,
    /// Why, if they had to say.
    pub reason: Option<Arc<str>>,
    pub selection: ReplaySelection,
    /// How many there were when it began.
    pub total: u64,
    /// How many have been made again, or discarded.
    pub made: u64,
    /// How many were not made again: they were not dead letters any more when it was their turn, or
    /// it is one of the reasons that follow.
    pub skipped: u64,
    /// Their hook had ended.
    pub hook_gone: u64,
    /// The version of their hook that they were to follow is not kept any more.
    pub version_gone: u64,
    /// How many were delivered, or discarded.
    pub succeeded: u64,
    /// How many have died again.
    pub failed: u64,
    /// How many were not owed any more.
    pub dropped: u64,
    /// The key after which it goes on; empty before the first.
    pub after: Bytes,
    /// Whether all have had their turn.
    pub all_made: bool,
    /// When the last of them ended.
    pub ended_at: Option<Millis>,
}

impl ReplayRecord {
    pub fn new(
        id: u64,
        begun_at: Millis,
        actor: Arc<str>,
        reason: Option<Arc<str>>,
        selection: ReplaySelection,
        total: u64,
    ) -> ReplayRecord {
        ReplayRecord {
            id,
            begun_at,
            actor,
            reason,
            selection,
            total,
            made: 0,
            skipped: 0,
            hook_gone: 0,
            version_gone: 0,
            succeeded: 0,
            failed: 0,
            dropped: 0,
            after: Bytes::new(),
            all_made: false,
            ended_at: None,
        }
    }

    /// How many are still to come to an end.
    pub fn pending(&self) -> u64 {
        let ended = self.succeeded + self.failed + self.dropped;
        if self.all_made {
            return self.made.saturating_sub(ended);
        }
        self.total.max(self.made + self.skipped).saturating_sub(self.skipped + ended)
    }

    /// A delivery of it has come to its end.
    pub fn count(&mut self, standing: Standing, now: Millis) {
        match standing {
            Standing::Delivered => self.succeeded += 1,
            Standing::Dead => self.failed += 1,
            Standing::Dropped => self.dropped += 1,
            Standing::Pending | Standing::Failed => {}
        }
        self.settle(now);
    }

    /// Some have had their turn, up to this key.
    pub fn advance(&mut self, turns: &ReplayTurns, after: Bytes, all_made: bool, now: Millis) {
        self.made += turns.made;
        if self.selection.action == LetterAction::Discard {
            // Nothing more comes of them.
            self.succeeded += turns.made;
        }
        self.skipped += turns.skipped();
        self.hook_gone += turns.hook_gone;
        self.version_gone += turns.version_gone;
        self.after = after;
        self.all_made = all_made;
        self.settle(now);
    }

    fn settle(&mut self, now: Millis) {
        if self.all_made && self.ended_at.is_none() && self.pending() == 0 {
            self.ended_at = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::id::{DeliveryNo, EventNo};

    fn selection() -> ReplaySelection {
        let (from, to) = (Millis(10), Millis(20));
        let (action, hooks, ids) = (LetterAction::Replay, Vec::new(), Vec::new());
        ReplaySelection { action, hooks, why: None, from, to, ids, original: false }
    }

    fn id(hook: u64) -> DeliveryId {
        DeliveryId { hook: HookId(hook), no: DeliveryNo { event: EventNo(1), round: 0 } }
    }

    #[test]
    fn a_selection_begins_with_its_first_moment_and_ends_before_its_last() {
        let all = selection();
        let found: Vec<bool> =
            [9, 10, 19, 20].map(|at| all.has(Millis(at), id(1))).into_iter().collect();
        assert_eq!(found, [false, true, true, false]);
        let of_hook = ReplaySelection { hooks: vec![HookId(1), HookId(3)], ..selection() };
        let found = [1, 2, 3].map(|hook| of_hook.has(Millis(10), id(hook)));
        assert_eq!(found, [true, false, true]);
        let named = ReplaySelection { ids: vec![id(2)], ..selection() };
        assert!(named.has(Millis(10), id(2)) && !named.has(Millis(10), id(1)));
    }

    #[test]
    fn whatever_it_makes_ends_somewhere_and_then_it_ends() {
        let mut replay = ReplayRecord::new(1, Millis(20), "a".into(), None, selection(), 4);
        assert_eq!(replay.pending(), 4);
        let turns = |made, not_dead| ReplayTurns { made, not_dead, ..ReplayTurns::default() };
        replay.advance(&turns(2, 1), Bytes::from_static(b"k"), false, Millis(21));
        assert_eq!(replay.pending(), 3);
        replay.count(Standing::Delivered, Millis(22));
        replay.count(Standing::Dead, Millis(23));
        assert_eq!((replay.pending(), replay.ended_at), (1, None));
        replay.advance(&turns(1, 0), Bytes::from_static(b"l"), true, Millis(24));
        assert_eq!((replay.pending(), replay.ended_at), (1, None));
        replay.count(Standing::Dropped, Millis(25));
        assert_eq!((replay.pending(), replay.ended_at), (0, Some(Millis(25))));
        let counted = (replay.succeeded, replay.failed, replay.dropped, replay.skipped);
        assert_eq!(counted, (1, 1, 1, 1));
    }

    #[test]
    fn what_is_discarded_has_its_end_at_once() {
        let selection = ReplaySelection { action: LetterAction::Discard, ..selection() };
        let mut discard = ReplayRecord::new(1, Millis(20), "a".into(), None, selection, 4);
        let turns = ReplayTurns { made: 2, not_dead: 1, ..ReplayTurns::default() };
        discard.advance(&turns, Bytes::from_static(b"k"), false, Millis(21));
        assert_eq!((discard.succeeded, discard.pending()), (2, 1));
        let turns = ReplayTurns { made: 1, ..ReplayTurns::default() };
        discard.advance(&turns, Bytes::from_static(b"l"), true, Millis(22));
        assert_eq!((discard.pending(), discard.ended_at), (0, Some(Millis(22))));
    }

    #[test]
    fn one_that_finds_nothing_any_more_ends_at_once() {
        let mut replay = ReplayRecord::new(1, Millis(20), "a".into(), None, selection(), 4);
        let turns = ReplayTurns { not_dead: 1, hook_gone: 2, version_gone: 1, made: 0 };
        replay.advance(&turns, Bytes::new(), true, Millis(21));
        assert_eq!((replay.pending(), replay.ended_at), (0, Some(Millis(21))));
        assert_eq!((replay.skipped, replay.hook_gone, replay.version_gone), (4, 2, 1));
    }
}
