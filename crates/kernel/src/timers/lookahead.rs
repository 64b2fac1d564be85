//! What is known of the due index without looking at it.

use std::collections::VecDeque;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_store::state::Reader;
use reveille_store::table::TableError;

use super::LOOK_EVERY_MS;
use crate::keys;
use crate::limits::TIMER_SLICE;

/// What the index holds for the time to come, as far as it was looked at.
///
/// A look costs as much as the work that it finds, and most entries are removed before their time,
/// so that finding the next one means to step over what remains of all those: it is done once for
/// many. An entry that was removed meanwhile is worked off all the same, and comes to nothing.
/// After [`LOOK_EVERY_MS`] nothing counts as known.
#[derive(Debug)]
pub struct TimerLookahead {
    /// Whether a timer is gone once it was worked off.
    fires_once: fn(&[u8]) -> bool,
    /// All entries that are not done ...
    entries: VecDeque<(Millis, Bytes)>,
    /// ... and come before this.
    until: Millis,
}

/// Entries that are looked for at once.
const AHEAD_MAX: usize = 64;

const _: () = assert!(AHEAD_MAX < TIMER_SLICE);

impl TimerLookahead {
    /// Nothing is known yet.
    pub fn new(fires_once: fn(&[u8]) -> bool) -> TimerLookahead {
        TimerLookahead { fires_once, entries: VecDeque::new(), until: Millis(0) }
    }

    /// Entries became durable, and this is the earliest of them.
    pub fn note(&mut self, at: Millis) {
        if at < self.until {
            self.until = at;
            self.entries.truncate(self.entries.partition_point(|(time, _)| *time < at));
        }
    }

    /// Something that was known has not been done.
    pub fn forget(&mut self) {
        *self = TimerLookahead::new(self.fires_once);
    }

    /// The first entries that are due, from this key on.
    pub fn look(
        &mut self,
        reader: &Reader,
        from: &Bytes,
        now: Millis,
    ) -> Result<Vec<Bytes>, TableError> {
        if let Some(known) = self.take(now) {
            return Ok(known);
        }
        reader.keys(from, &keys::timers_after(now), TIMER_SLICE)
    }

    /// The entries that are due, if all of them are known. Work that is done in slices leaves its
    /// entry there for the next slice: that takes a look.
    fn take(&mut self, now: Millis) -> Option<Vec<Bytes>> {
        let due = self.entries.partition_point(|(at, _)| *at <= now);
        let timers = self.entries.iter().take(due).all(|(_, key)| (self.fires_once)(key));
        let known = now < self.until && timers;
        known.then(|| self.entries.drain(..due).map(|(_, key)| key).collect())
    }

    /// When something may be due next: everything until now is done.
    pub fn next(&mut self, reader: &Reader, now: Millis) -> Result<Millis, TableError> {
        if self.until <= now {
            let after = keys::timers_after(now);
            let found = reader.keys(&after, &keys::timers_end(), AHEAD_MAX)?;
            let time = |key: &Bytes| keys::parse_timer(key).map(|(at, _)| at);
            // There may be more entries at the time of the last one.
            let last = found.last().filter(|_| found.len() == AHEAD_MAX).and_then(time);
            let entries = found.into_iter().filter_map(|key| Some((time(&key)?, key)));
            let until = last.unwrap_or(Millis::NEVER).min(now + LOOK_EVERY_MS);
            self.entries = entries.filter(|(at, _)| *at < until).collect();
            self.until = until;
        }
        self.entries.drain(..self.entries.partition_point(|(at, _)| *at <= now));
        Ok(self.entries.front().map_or(self.until, |(at, _)| *at))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use reveille_store::batch::Batch;
    use reveille_store::state::State;
    use reveille_store::table::MemoryTable;

    use super::super::done_until;
    use super::*;
    use crate::random::Random;

    /// An index, and whoever works it off.
    struct World {
        state: State,
        seq: u64,
        there: BTreeSet<Bytes>,
        ahead: TimerLookahead,
        since: Millis,
        now: Millis,
    }

    impl World {
        fn new() -> World {
            World {
                state: State::new(Arc::new(MemoryTable::default()), 0),
                seq: 0,
                there: BTreeSet::new(),
                ahead: TimerLookahead::new(fires_once),
                since: Millis(0),
                now: Millis(1_000),
            }
        }

        fn write(&mut self, key: Bytes, value: Option<Bytes>) {
            let mut batch = Batch::default();
            batch.set(key, value);
            let (payload, run) = batch.encode();
            self.seq += 1;
            self.state.publish(self.seq, Arc::new(run), payload.len());
        }

        fn add(&mut self, at: u64, timer: &[u8]) -> Bytes {
            let key = keys::timer(Millis(at), timer);
            self.write(key.clone(), Some(Bytes::new()));
            self.there.insert(key.clone());
            self.ahead.note(Millis(at));
            self.since = self.since.min(Millis(at));
            key
        }

        fn remove(&mut self, key: &Bytes) {
            self.write(key.clone(), None);
            self.there.remove(key);
        }

        /// One look: what is due and still there.
        fn look(&mut self) -> Vec<Bytes> {
            let reader = self.state.reader();
            let (since, now) = (self.since, self.now);
            let found = self.ahead.look(&reader, &keys::timers_from(since), now).unwrap();
            found.into_iter().filter(|key| self.there.contains(key)).collect()
        }

        /// Works everything off that is due; returns when it means to look again.
        fn work(&mut self) -> Millis {
            loop {
                let reader = self.state.reader();
                let (since, now) = (self.since, self.now);
                let found = self.ahead.look(&reader, &keys::timers_from(since), now).unwrap();
                if found.is_empty() {
                    self.since = now;
                    return self.ahead.next(&reader, now).unwrap();
                }
                for key in &found {
                    self.remove(key);
                }
                self.since = done_until(&found, now, fires_once);
            }
        }

        fn earliest(&self) -> Option<Millis> {
            self.there.first().and_then(|key| keys::parse_timer(key)).map(|(at, _)| at)
        }
    }

    /// One that is gone once it was worked off.
    fn timer(number: u64) -> Vec<u8> {
        [&[1][..], &number.to_be_bytes()].concat()
    }

    /// One that may stay for its next slice.
    fn slice(number: u64) -> Vec<u8> {
        [&[2][..], &number.to_be_bytes()].concat()
    }

    fn fires_once(key: &[u8]) -> bool {
        keys::parse_timer(key).is_some_and(|(_, timer)| timer.first() == Some(&1))
    }

    #[test]
    fn many_timers_take_one_look() {
        let mut world = World::new();
        for number in 0..40 {
            world.add(2_000 + number, &timer(number));
        }
        assert_eq!(world.work(), Millis(2_000));
        for number in 0..40 {
            world.now = Millis(2_000 + number);
            let known = world.ahead.take(world.now).expect("no look");
            assert_eq!(known.len(), 1, "{number}");
            world.since = world.now;
        }
    }

    #[test]
    fn one_that_comes_between_is_not_missed() {
        let mut world = World::new();
        world.add(2_000, &timer(1));
        world.add(4_000, &timer(2));
        assert_eq!(world.work(), Millis(2_000));
        let key = world.add(3_000, &timer(3));
        world.now = Millis(3_500);
        assert!(world.look().contains(&key));
    }

    #[test]
    fn what_was_not_done_is_found_again() {
        let mut world = World::new();
        let key = world.add(2_000, &timer(1));
        assert_eq!(world.work(), Millis(2_000));
        world.now = Millis(2_500);
        assert_eq!(world.look(), vec![key.clone()]);
        world.ahead.forget();
        assert_eq!(world.look(), vec![key]);
    }

    #[test]
    fn what_is_done_in_slices_is_found_until_it_is_gone() {
        let mut world = World::new();
        let key = world.add(2_000, &slice(1));
        assert_eq!(world.work(), Millis(2_000));
        world.now = Millis(2_500);
        assert_eq!(world.look(), vec![key.clone()]);
        assert_eq!(world.look(), vec![key.clone()], "there is another slice");
        world.remove(&key);
        assert_eq!(world.look(), Vec::<Bytes>::new());
    }

    #[test]
    fn nothing_that_is_due_stays_and_nobody_sleeps_too_long() {
        for seed in 0..64 {
            let (mut world, mut dice) = (World::new(), Random::new(seed));
            let mut roll = |sides: u64| dice.next() % sides;
            for number in 0..400 {
                match roll(8) {
                    // Some of them at one time, more than are looked for at once.
                    0 => {
                        let at = world.now.0 + roll(50);
                        (0..roll(100)).for_each(|of| drop(world.add(at, &timer(number + of))));
                    }
                    1 | 2 => drop(world.add(world.now.0 + roll(200), &timer(number))),
                    3 => drop(world.add(world.now.0 - roll(20), &timer(number))),
                    4 => drop(world.add(world.now.0 + roll(200), &slice(number))),
                    5 => {
                        let removed = world.there.iter().nth(roll(8) as usize).cloned();
                        removed.iter().for_each(|key| world.remove(key));
                    }
                    6 => world.now = Millis(world.now.0 - roll(30)),
                    _ => world.now = world.now + roll(100),
                }
                let next = world.work();
                let earliest = world.earliest();
                assert!(earliest.is_none_or(|at| at > world.now && next <= at), "seed {seed}");
                assert!(next > world.now, "seed {seed}: it would never sleep");
            }
        }
    }
}
