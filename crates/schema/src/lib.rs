//! What the state holds: every key, every record, every timer, and how they are written.
//!
//! Nothing here reads or writes a file, and nothing here decides anything. Each domain has a room
//! with its keys, its records and its timers side by side, described at the head of its file.
//!
//! A key begins with a tag byte. Tags are persisted: they are never changed and never reused.
//! Integers are big-endian, so that byte order is the order of the numbers.
//!
//! | tags | what | where |
//! |---|---|---|
//! | `01` | single values by name | [`meta`], [`auth`] |
//! | `02`, `03` | streams, producers | [`streams`] |
//! | `04` | chunks of streams | the store |
//! | `05` | timers | the kernel |
//! | `06` to `0a` | subscriptions, consumers, links, backlogs, followers | [`wakes`] |
//! | `0b` | keys of the API | [`auth`] |
//! | `0c` | fan-out cursors | [`wakes`] |
//! | `0d`, `0e` | hooks, events | [`deliveries`] |
//! | `0f` | event ids | [`events`] |
//! | `10` to `16` | deliveries, counts, dead letters, held, lanes, waiting, fan-outs to hooks | [`deliveries`] |
//! | `17`, `18` | ingested batches, keys of no use later | [`events`] |
//! | `1d`, `1e`, `27` | former versions of hooks, hooks that have ended, notes of hooks | [`deliveries`] |
//! | `1f` | consumers that rest with work | [`wakes`] |
//! | `19`, `1a` | rows of the audit log, heads of its chains | [`audit`] |
//! | `1b`, `1c` | dead letters by tenant, replays | [`deliveries`] |
//! | `20` to `22` | documents, entries of their indexes, indexes | [`documents`] |
//! | `23` to `26` | outcomes of writes, change heads, places of changes, rules | [`documents`] |
//! | `28` | secrets of triggers | [`triggers`] |
//! | `30` to `34` | facts, facts by entity, slots, changes, clocks of facts | [`facts`] |
//! | `35` to `3a` | gardens, memberships, gardens by member, cards, tokens, cancelled subscriptions | [`facts`] |
//!
//! A timer is its domain's number, a kind of that domain, and a subject. The kernel puts its tag
//! and a time before it and never looks inside. Numbers of domains and kinds are never reused.
//!
//! | domain | timers |
//! |---|---|
//! | `01` | [`streams::StreamTimer`] |
//! | `02` | [`wakes::WakeTimer`] |
//! | `03` | [`deliveries::DeliveryTimer`] |
//! | `04` | [`events::EventTimer`] |
//! | `05` | [`documents::DocumentTimer`] |
//! | `07` | [`facts::FactTimer`] |
//!
//! The domain of a face has the face's number, which its hooks carry.

pub mod audit;
pub mod auth;
pub mod deliveries;
pub mod documents;
pub mod events;
pub mod facts;
pub mod meta;
pub mod streams;
pub mod triggers;
pub mod wakes;

pub mod keys;
pub mod record;

mod codec;
mod counter;
#[cfg(test)]
mod golden;
mod parts;

pub use codec::{Record, RecordError};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_tag_and_no_domain_has_two_meanings() {
        let rooms = [
            audit::TAGS,
            auth::TAGS,
            deliveries::TAGS,
            documents::TAGS,
            events::TAGS,
            facts::TAGS,
            streams::TAGS,
            triggers::TAGS,
            wakes::TAGS,
        ];
        let store_and_kernel = [0x04, 0x05];
        let mut seen = BTreeSet::from([parts::META]);
        for tag in rooms.into_iter().flatten().chain(&store_and_kernel) {
            assert!(seen.insert(*tag), "{tag:02x} is there twice");
        }
        assert!(seen.into_iter().eq((0x01..=0x28).chain(0x30..=0x3a)));
        let domains = [
            streams::StreamTimer::DOMAIN,
            wakes::WakeTimer::DOMAIN,
            deliveries::DeliveryTimer::DOMAIN,
            events::EventTimer::DOMAIN,
            documents::DocumentTimer::DOMAIN,
            facts::FactTimer::DOMAIN,
        ];
        assert_eq!(domains, [1, 2, 3, 4, 5, 7]);
    }

    /// What a timer of any domain writes that these bytes are read as.
    fn rewritten(bytes: &[u8]) -> Vec<Bytes> {
        let streams = streams::StreamTimer::decode(bytes).map(|timer| timer.encode());
        let wakes = wakes::WakeTimer::decode(bytes).map(|timer| timer.encode());
        let deliveries = deliveries::DeliveryTimer::decode(bytes).map(|timer| timer.encode());
        let events = events::EventTimer::decode(bytes).map(|timer| timer.encode());
        let documents = documents::DocumentTimer::decode(bytes).map(|timer| timer.encode());
        let facts = facts::FactTimer::decode(bytes).map(|timer| timer.encode());
        [streams, wakes, deliveries, events, documents, facts].into_iter().flatten().collect()
    }

    proptest! {
        #[test]
        fn what_is_read_as_a_timer_is_of_one_domain_and_written_the_same(
            begin in (0..8_u8, 0..7_u8),
            number in any::<u64>(),
            text in "([a-z]{1,3}\0/[a-z/]{0,3}|[a-z]{0,3})(\0[a-z\0/]{0,12})?",
            has_number in any::<bool>(),
        ) {
            let number = number.to_be_bytes();
            let number = if has_number { &number[..] } else { &[] };
            let bytes = [&[begin.0, begin.1], number, text.as_bytes()].concat();
            let found = rewritten(&bytes);
            prop_assert!(found.len() <= 1 && found.iter().all(|it| *it == bytes), "{bytes:?}");
        }
    }
}
