//! What may happen to a consumer on a walk, drawn at random.

use proptest::prelude::*;
use reveille_core::consumer::{Dialect, Policy, Schedule, SyncDone, WakeBy};

/// The last of them does not exist until something is appended.
pub(crate) const STREAMS: usize = 4;

/// Something that happens, before it is known what state it meets.
#[derive(Debug, Clone)]
pub(crate) enum Move {
    /// A stream grows, or begins; the consumer hears of it at once, or later.
    Append {
        stream: usize,
        bytes: u64,
        heard: bool,
    },
    Hear,
    /// A stream is deleted for good.
    Delete {
        stream: usize,
    },
    MorePending(bool),
    Answer {
        which: Which,
        kind: u8,
    },
    Report {
        speaker: Speaker,
        acks: Vec<(usize, Place)>,
        follow: u8,
        leave: u8,
        done: bool,
    },
    /// It has read everything, and says so.
    Finish,
    Claim {
        worker: u8,
    },
    Release {
        speaker: Speaker,
    },
    /// Somebody who looks after it wakes it, moves it or brings it back.
    Wake {
        force: bool,
    },
    Seek {
        stream: Option<usize>,
        place: Place,
    },
    Revive,
    Timer {
        moment: Moment,
        in_flight: bool,
    },
    /// The subscription is paused, or goes on.
    Pause(bool),
    /// The consumer looks again.
    Review,
}

/// Which attempt is answered.
#[derive(Debug, Clone)]
pub(crate) enum Which {
    Last,
    /// One of those that were ever made, perhaps for the second time.
    Earlier(prop::sample::Index),
    Forged {
        ahead: i64,
        attempt: u32,
    },
}

/// For whom a callback speaks.
#[derive(Debug, Clone)]
pub(crate) struct Speaker {
    /// Added to the current epoch.
    pub(crate) ahead: i64,
    pub(crate) wake: Wake,
}

#[derive(Debug, Clone)]
pub(crate) enum Wake {
    Unnamed,
    Current,
    Earlier(prop::sample::Index),
    Invented,
    Garbage,
}

/// Where an acknowledgement points.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    Tail,
    BeyondTail,
    Acked,
    BeforeAcked,
    Beginning,
    Nowhere,
    At(u64),
}

#[derive(Debug, Clone)]
pub(crate) enum Moment {
    Now,
    After(u64),
    JustBeforeDue,
    Due,
}

fn speaker() -> impl Strategy<Value = Speaker> {
    let wake = prop_oneof![
        2 => Just(Wake::Unnamed),
        6 => Just(Wake::Current),
        1 => any::<prop::sample::Index>().prop_map(Wake::Earlier),
        1 => Just(Wake::Invented),
        1 => Just(Wake::Garbage),
    ];
    let ahead = prop_oneof![8 => Just(0), 1 => -3_i64..0, 1 => 1_i64..3];
    (ahead, wake).prop_map(|(ahead, wake)| Speaker { ahead, wake })
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        4 => Just(Place::Tail),
        1 => Just(Place::BeyondTail),
        1 => Just(Place::Acked),
        1 => Just(Place::BeforeAcked),
        1 => Just(Place::Beginning),
        1 => Just(Place::Nowhere),
        3 => (0_u64..40).prop_map(Place::At),
    ]
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        5 => Just(Which::Last),
        3 => any::<prop::sample::Index>().prop_map(Which::Earlier),
        1 => (-2_i64..3, 0_u32..4).prop_map(|(ahead, attempt)| Which::Forged { ahead, attempt }),
    ]
}

fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![
        1 => Just(Moment::Now),
        2 => (0_u64..70_000).prop_map(Moment::After),
        1 => Just(Moment::JustBeforeDue),
        4 => Just(Moment::Due),
    ]
}

pub(crate) fn a_move() -> impl Strategy<Value = Move> {
    let acks = prop::collection::vec((0..STREAMS + 1, place()), 0..4);
    // Mostly few bits: a consumer that follows nothing is soon gone.
    let streams = || prop_oneof![8 => Just(0_u8), 2 => 0_u8..16];
    let report = (speaker(), acks, streams(), streams(), any::<bool>());
    prop_oneof![
        8 => (0..STREAMS, 0_u64..9, prop::bool::weighted(0.8))
            .prop_map(|(stream, bytes, heard)| Move::Append { stream, bytes, heard }),
        2 => Just(Move::Hear),
        1 => (0..STREAMS).prop_map(|stream| Move::Delete { stream }),
        1 => any::<bool>().prop_map(Move::MorePending),
        6 => (which(), 0_u8..3).prop_map(|(which, kind)| Move::Answer { which, kind }),
        8 => report.prop_map(|(speaker, acks, follow, leave, done)| {
            Move::Report { speaker, acks, follow, leave, done }
        }),
        2 => Just(Move::Finish),
        2 => (0_u8..3).prop_map(|worker| Move::Claim { worker }),
        1 => speaker().prop_map(|speaker| Move::Release { speaker }),
        1 => any::<bool>().prop_map(|force| Move::Wake { force }),
        1 => (prop::option::of(0..STREAMS), place())
            .prop_map(|(stream, place)| Move::Seek { stream, place }),
        1 => Just(Move::Revive),
        6 => (moment(), any::<bool>())
            .prop_map(|(moment, in_flight)| Move::Timer { moment, in_flight }),
        1 => prop::bool::weighted(0.4).prop_map(Move::Pause),
        2 => Just(Move::Review),
    ]
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let dialect = prop_oneof![Just(Dialect::Webhooks), Just(Dialect::Leases)];
    let wake_by = prop_oneof![3 => Just(WakeBy::Webhook), 2 => Just(WakeBy::Pull)];
    let sync_done = prop_oneof![Just(SyncDone::Tail), Just(SyncDone::Snapshot)];
    let give_up = prop_oneof![Just(None), Just(Some(60_000)), Just(Some(3 * 86_400_000))];
    let min_interval = prop_oneof![2 => Just(0), 1 => 1_u64..60_000];
    let max_delay = prop_oneof![2 => Just(None), 1 => (0_u64..60_000).prop_map(Some)];
    (dialect, wake_by, sync_done, give_up, min_interval, max_delay).prop_map(
        |(dialect, wake_by, sync_done, give_up_after_ms, min_interval_ms, max_delay_ms)| Policy {
            dialect,
            wake_by,
            waking_timeout_ms: 10_000,
            lease_ms: 45_000,
            schedule: match dialect {
                Dialect::Webhooks => Schedule::Webhooks,
                Dialect::Leases => Schedule::Leases,
            },
            retry_scale_milli: 1_000,
            give_up_after_ms,
            keep_given_up_ms: 100_000,
            sync_done,
            min_interval_ms,
            max_delay_ms,
            is_paused: false,
        },
    )
}
