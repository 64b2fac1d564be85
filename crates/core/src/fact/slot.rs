//! Contradictions: which of the values that were said of one relation hold at the same time.
//!
//! A slot is one relation of one entity, in one scope and one garden (or none). What is said in
//! another garden is another slot, so that nobody outside learns from a contradiction what is said
//! inside.

use super::limits::LIVE_VALUES_MAX;
use super::statement::FactNo;
use super::value::ValueId;
use crate::time::Millis;

/// A value that was said, and not taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveValue {
    /// The latest fact that says so.
    pub fact: FactNo,
    pub value: ValueId,
    /// Until when it holds; `None`: until it is taken back.
    pub until: Option<Millis>,
}

/// What holds in a slot, each value once, in the order in which it was said last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slot {
    pub live: Vec<LiveValue>,
}

/// What came of something that was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub slot: Slot,
    /// The facts that it contradicts, oldest first.
    pub contradicts: Vec<FactNo>,
}

impl LiveValue {
    fn holds(&self, now: Millis) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Slot {
    /// Somebody says something. It contradicts what holds and is of another value.
    #[must_use]
    pub fn asserted(&self, new: LiveValue, now: Millis) -> Said {
        let holding = self.live.iter().filter(|it| it.holds(now));
        let (same, others): (Vec<LiveValue>, Vec<LiveValue>) =
            holding.copied().partition(|it| it.value == new.value);
        let contradicts =
            if new.holds(now) { others.iter().map(|it| it.fact).collect() } else { Vec::new() };
        let mut live = others;
        // It holds for as long as anybody has said that it does.
        let until =
            same.iter().fold(new.until, |until, it| until.zip(it.until).map(|(a, b)| a.max(b)));
        live.push(LiveValue { until, ..new });
        live.retain(|it| it.holds(now));
        if live.len() > LIVE_VALUES_MAX {
            // The one that ends first is missed for the shortest time.
            let ends = |it: &LiveValue| it.until.unwrap_or(Millis::NEVER);
            let first = live.iter().map(ends).min();
            if let Some(at) = live.iter().position(|it| Some(ends(it)) == first) {
                live.remove(at);
            }
        }
        Said { slot: Slot { live }, contradicts }
    }

    /// Everything that was said is taken back.
    #[must_use]
    pub fn retracted(&self) -> Slot {
        Slot::default()
    }

    /// The facts that hold.
    pub fn holding(&self, now: Millis) -> impl Iterator<Item = FactNo> + '_ {
        self.live.iter().filter(move |it| it.holds(now)).map(|it| it.fact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(fact: u64, value: u8, until: Option<u64>) -> LiveValue {
        LiveValue { fact: FactNo(fact), value: ValueId([value; 16]), until: until.map(Millis) }
    }

    fn say(slot: &mut Slot, new: LiveValue, now: u64) -> Vec<u64> {
        let said = slot.asserted(new, Millis(now));
        *slot = said.slot;
        said.contradicts.into_iter().map(|it| it.0).collect()
    }

    #[test]
    fn another_value_contradicts_and_the_same_does_not() {
        let mut slot = Slot::default();
        assert_eq!(say(&mut slot, value(1, 7, None), 0), [0; 0]);
        assert_eq!(say(&mut slot, value(2, 7, None), 0), [0; 0]);
        assert_eq!(say(&mut slot, value(3, 8, None), 0), [2]);
        assert_eq!(say(&mut slot, value(4, 9, None), 0), [2, 3]);
        assert_eq!(say(&mut slot, value(5, 7, None), 0), [3, 4]);
        assert_eq!(slot.holding(Millis(0)).collect::<Vec<_>>(), [FactNo(3), FactNo(4), FactNo(5)]);
    }

    #[test]
    fn what_was_taken_back_contradicts_nothing() {
        let mut slot = Slot::default();
        say(&mut slot, value(1, 7, None), 0);
        slot = slot.retracted();
        assert_eq!(say(&mut slot, value(3, 8, None), 0), [0; 0]);
    }

    #[test]
    fn what_has_run_out_contradicts_nothing() {
        let mut slot = Slot::default();
        say(&mut slot, value(1, 7, Some(10)), 0);
        assert_eq!(say(&mut slot.clone(), value(2, 8, None), 9), [1]);
        assert_eq!(say(&mut slot.clone(), value(2, 8, None), 10), [0; 0]);
        // Something that is over already holds nothing and contradicts nothing.
        assert_eq!(say(&mut slot.clone(), value(2, 8, Some(5)), 9), [0; 0]);
        // The same value again, for a shorter time, does not shorten it.
        say(&mut slot, value(2, 7, Some(5)), 1);
        assert_eq!(say(&mut slot, value(3, 8, None), 9), [2]);
        let mut slot = Slot::default();
        say(&mut slot, value(1, 7, Some(10)), 0);
        say(&mut slot, value(2, 7, None), 1);
        assert_eq!(say(&mut slot, value(3, 8, None), 99), [2]);
    }

    #[test]
    fn a_slot_with_more_values_than_it_keeps_still_finds_contradictions() {
        let mut slot = Slot::default();
        for number in 0..200_u8 {
            let found = say(&mut slot, value(u64::from(number), number, None), 0);
            assert_eq!(found.len(), usize::from(number).min(LIVE_VALUES_MAX));
        }
        // One that ends soon goes before those that stay.
        let ends_soon = value(900, 250, Some(10));
        say(&mut slot, ends_soon, 0);
        assert!(!slot.live.contains(&ends_soon) && slot.live.len() == LIVE_VALUES_MAX);
    }
}
