//! Random walks through the life of a consumer: every step keeps the laws, and from wherever a
//! walk has led, fair treatment brings the consumer to rest.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "this is a test")]

#[path = "consumer/ground.rs"]
mod ground;
#[path = "consumer/laws.rs"]
mod laws;
#[path = "consumer/moves.rs"]
mod moves;
#[path = "consumer/settle.rs"]
mod settle;

use std::collections::BTreeMap;

use proptest::prelude::*;
use reveille_core::consumer::{
    Ack, AnnouncedOffset, Answer, Callback, Consumer, Input, Link, Phase, Policy, WakeBy, WakeId,
};
use reveille_core::offset::ReadFrom;
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset, StreamPath};

use crate::ground::Ground;
use crate::laws::{check, is_gone, tells};
use crate::moves::{Moment, Move, Place, STREAMS, Speaker, Wake, Which, a_move, policy};
use crate::settle::{WAYS, all_done, settle};

/// An attempt: its epoch, its number, and what it announced.
type Told = (u64, u32, Vec<AnnouncedOffset>);

/// A consumer, and everything that it ever said or was told.
struct Walk {
    policy: Policy,
    consumer: Consumer,
    tails: Vec<(StreamPath, Option<Offset>)>,
    deleted: [bool; STREAMS],
    now: Millis,
    more_pending: bool,
    worth_bytes: u64,
    steps: u64,
    /// Whether it has yet to hear that something became pending,
    owed: bool,
    /// or that it is paused no longer.
    unreviewed: bool,
    told: Vec<Told>,
    wakes: BTreeMap<u64, WakeId>,
}

fn path(stream: usize) -> StreamPath {
    StreamPath::parse(&format!("/s{stream}")).unwrap()
}

fn id(number: u64) -> WakeId {
    let mut id = [0; 12];
    id[..8].copy_from_slice(&number.to_be_bytes());
    WakeId(id)
}

impl Walk {
    fn new(policy: Policy, worth_bytes: u64) -> Walk {
        let tail = |stream| (stream < STREAMS - 1).then(|| Offset::new(5 * stream as u64));
        let link = |stream: usize, acked| Link {
            path: path(stream),
            stream: Some(StreamId(stream as u64)),
            acked,
        };
        Walk {
            policy,
            consumer: Consumer::new(0, vec![link(0, None), link(1, tail(1))]),
            tails: (0..STREAMS).map(|stream| (path(stream), tail(stream))).collect(),
            deleted: [false; STREAMS],
            now: Millis(1_000_000),
            more_pending: false,
            worth_bytes,
            steps: 0,
            unreviewed: false,
            owed: true,
            told: Vec::new(),
            wakes: BTreeMap::new(),
        }
    }

    fn ground(&self) -> Ground<'_> {
        Ground {
            machine: Consumer::step,
            policy: &self.policy,
            tails: &self.tails,
            now: self.now,
            fresh: id(self.steps),
            random: self.steps.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7,
            more_pending: self.more_pending,
            worth_bytes: self.worth_bytes,
        }
    }

    /// Changes the world, and says what of it reaches the consumer.
    fn meet(&mut self, a_move: &Move) -> Option<Input> {
        match a_move {
            Move::Append { stream, bytes, heard } => {
                let tail = &mut self.tails[*stream].1;
                if !self.deleted[*stream] {
                    *tail = Some(tail.unwrap_or_default().plus(*bytes));
                    self.owed = true;
                }
                heard.then_some(Input::Appended)
            }
            Move::Hear => Some(Input::Appended),
            Move::Delete { stream } => {
                self.deleted[*stream] = true;
                self.tails[*stream].1 = None;
                None
            }
            Move::MorePending(more) => {
                self.more_pending = *more;
                self.owed = true;
                None
            }
            Move::Answer { which, kind } => self.answer(which, *kind),
            Move::Report { speaker, acks, follow, leave, done } => {
                let acks = acks.iter().map(|(stream, place)| self.ack(*stream, place)).collect();
                let chosen = |bits: u8| (0..STREAMS).filter(move |at| bits & (1 << at) != 0);
                let id_of = |at: usize| self.tails[at].1.map(|_| StreamId(at as u64));
                let subscribe = chosen(*follow).map(|at| (path(at), id_of(at))).collect();
                let unsubscribe = chosen(*leave).map(path).collect();
                let (epoch, wake_id) = self.voice(speaker);
                let done = *done;
                let callback = Callback { epoch, wake_id, acks, subscribe, unsubscribe, done };
                Some(Input::Callback(callback))
            }
            Move::Finish => Some(all_done(&self.ground(), &self.consumer)),
            Move::Claim { worker } => Some(Input::Claim { worker: format!("w{worker}").into() }),
            Move::Release { speaker } => {
                let (epoch, wake_id) = self.voice(speaker);
                Some(Input::Release { epoch, wake_id: wake_id?.ok()? })
            }
            Move::Wake { force } => Some(Input::Wake { force: *force }),
            Move::Seek { stream, place } => {
                let to = match self.ack(stream.unwrap_or(0), place).offset {
                    Some(None) => ReadFrom::Start,
                    Some(Some(offset)) => ReadFrom::At(offset),
                    None => ReadFrom::Now,
                };
                Some(Input::Seek { stream: stream.map(path), to })
            }
            Move::Revive => Some(Input::Revive),
            Move::Timer { moment, in_flight } => {
                let due = self.consumer.deadline().unwrap_or(self.now);
                self.now = match moment {
                    Moment::Now => self.now,
                    Moment::After(ms) => self.now + *ms,
                    Moment::JustBeforeDue => self.now.max(Millis(due.0 - 1)),
                    Moment::Due => self.now.max(due),
                };
                Some(Input::Timer { in_flight: *in_flight })
            }
            Move::Pause(paused) => {
                self.unreviewed |= self.policy.is_paused && !*paused;
                self.policy.is_paused = *paused;
                None
            }
            Move::Review => Some(Input::Reviewed),
        }
    }

    /// An event in a stream is written, or not: nobody answers it.
    fn answer(&self, which: &Which, kind: u8) -> Option<Input> {
        if self.policy.wake_by == WakeBy::Pull {
            return None;
        }
        let (epoch, attempt, announced) = match which {
            Which::Last => self.told.last()?.clone(),
            Which::Earlier(_) if self.told.is_empty() => return None,
            Which::Earlier(index) => index.get(&self.told).clone(),
            Which::Forged { ahead, attempt } => {
                let epoch = self.consumer.epoch.saturating_add_signed(*ahead);
                (epoch, *attempt, self.ground().announced(&self.consumer))
            }
        };
        let answer = match kind {
            0 => Answer::Accepted,
            1 => Answer::Done(announced),
            _ => Answer::Failed,
        };
        Some(Input::Answered { epoch, attempt, answer })
    }

    fn voice(&self, speaker: &Speaker) -> (u64, Option<Result<WakeId, ()>>) {
        let epoch = self.consumer.epoch.saturating_add_signed(speaker.ahead);
        let earlier: Vec<_> = self.wakes.values().copied().collect();
        let wake_id = match &speaker.wake {
            Wake::Unnamed => None,
            Wake::Current => self.consumer.wake_id.map(Ok),
            Wake::Earlier(_) if earlier.is_empty() => None,
            Wake::Earlier(index) => Some(Ok(*index.get(&earlier))),
            Wake::Invented => Some(Ok(WakeId([0xab; 12]))),
            Wake::Garbage => Some(Err(())),
        };
        (epoch, wake_id)
    }

    fn ack(&self, stream: usize, place: &Place) -> Ack {
        let link = self.consumer.links.iter().find(|link| link.path == path(stream));
        let acked = link.and_then(|link| link.acked);
        let tail = self.tails.get(stream).and_then(|(_, tail)| *tail);
        let before = |at: Offset| Offset::new(at.position().saturating_sub(1));
        let offset = match place {
            Place::Tail => Some(tail),
            Place::BeyondTail => Some(Some(tail.unwrap_or_default().plus(1))),
            Place::Acked => Some(acked),
            Place::BeforeAcked => Some(acked.map(before)),
            Place::Beginning => Some(None),
            Place::Nowhere => None,
            Place::At(position) => Some(Some(Offset::new(*position))),
        };
        Ack { path: path(stream).as_str().into(), offset, from: None }
    }

    fn take(&mut self, a_move: &Move) -> Result<(), String> {
        self.steps += 1;
        if let Some(input) = self.meet(a_move) {
            let before = self.consumer.clone();
            let outcome = self.ground().step(&self.consumer, &input);
            assert_eq!(self.consumer, before, "a step does not touch what it is asked about");
            check(&self.ground(), &before, &input, &outcome)?;
            if let Ok(step) = outcome {
                for (epoch, attempt) in tells(&step) {
                    let wake_id = step.consumer.wake_id.ok_or("a wake has a name")?;
                    self.remember(epoch, wake_id)?;
                    self.told.push((epoch, attempt, self.ground().announced(&step.consumer)));
                }
                let looked = matches!(input, Input::Appended | Input::Callback(_));
                let reviewed = input == Input::Reviewed;
                self.owed &= !(looked || reviewed);
                self.unreviewed &= !reviewed;
                self.consumer = step.consumer;
            }
        }
        self.comes_to_rest()
    }

    /// S1 and S2 over the whole life: later wakes have higher epochs, and no name serves two.
    fn remember(&mut self, epoch: u64, wake_id: WakeId) -> Result<(), String> {
        if let Some((last, known)) = self.wakes.last_key_value() {
            let (retry, newer) = (epoch == *last, epoch > *last);
            laws::ensure(retry || newer, "S1: epochs that are told never fall")?;
            laws::ensure(retry == (wake_id == *known), "S2: one name for each epoch")?;
        }
        self.wakes.insert(epoch, wake_id);
        Ok(())
    }

    fn comes_to_rest(&self) -> Result<(), String> {
        let policy = Policy { is_paused: false, ..self.policy.clone() };
        let ground = Ground { more_pending: false, policy: &policy, ..self.ground() };
        let resting = self.consumer.phase == Phase::Idle { wake_at: None };
        let is_owed = self.owed || self.unreviewed || self.policy.is_paused;
        let forgotten = resting && self.ground().is_pending(&self.consumer) && !is_owed;
        laws::ensure(!forgotten, "L1: work is pending, heard of, and not told")?;
        WAYS.iter().try_for_each(|way| {
            let is_reviewed = self.unreviewed || self.policy.is_paused;
            let owed = match self.owed {
                _ if is_reviewed => Some(Input::Reviewed),
                true => Some(Input::Appended),
                false => None,
            };
            let settled = settle(&ground, &self.consumer, owed, *way);
            settled.map_err(|broken| format!("{way:?}: {broken}"))
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 10_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_happens_the_laws_hold_and_rest_can_be_reached(
        policy in policy(),
        worth_bytes in 0_u64..20,
        moves in prop::collection::vec(a_move(), 1..60),
    ) {
        let mut walk = Walk::new(policy, worth_bytes);
        for a_move in &moves {
            let taken = walk.take(a_move);
            prop_assert!(taken.is_ok(), "{:?} led to {:?}: {:?}", a_move, walk.consumer, taken);
        }
    }
}

#[test]
fn most_walks_go_far() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut gone, mut woken, mut retried, mut collected, mut put_off) = (0, 0, 0, 0, 0);
    for _ in 0..200 {
        let policy = policy().new_tree(&mut runner).unwrap().current();
        let moves = prop::collection::vec(a_move(), 60).new_tree(&mut runner).unwrap().current();
        let mut walk = Walk::new(policy, 5);
        for a_move in &moves {
            walk.take(a_move).unwrap();
            let collecting = matches!(walk.consumer.phase, Phase::Idle { wake_at: Some(_) });
            collected += u32::from(collecting);
            let resting = walk.consumer.phase == Phase::Idle { wake_at: None };
            put_off += u32::from(resting && walk.consumer.pending_since.is_some());
        }
        gone += u32::from(is_gone(&walk.consumer));
        woken += u32::from(walk.consumer.epoch >= 3);
        retried += u32::from(walk.told.iter().any(|(_, attempt, _)| *attempt > 1));
    }
    println!("gone {gone}, woken thrice {woken}, retried {retried}, collecting {collected}");
    println!("put off {put_off}");
    assert!(gone < 120 && woken > 50 && retried > 10 && collected > 100 && put_off > 100);
}
