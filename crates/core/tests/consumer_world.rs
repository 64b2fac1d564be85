//! Every interleaving of a small world of two consumers, two streams, late answers, zombies and a
//! crash keeps the laws, and from all of its states there is a fair way to rest.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "this is a test")]
#![allow(clippy::expect_used, reason = "this is a test")]

#[path = "consumer/ground.rs"]
mod ground;
#[path = "consumer/laws.rs"]
mod laws;
#[path = "consumer/search.rs"]
mod search;
#[path = "consumer/settle.rs"]
mod settle;
#[path = "consumer/world.rs"]
mod world;

use reveille_core::consumer::{
    Consumer, Dialect, Effect, Given, Input, Phase, Policy, Rejected, Schedule, SyncDone,
    Transition, WakeBy,
};

use crate::ground::Machine;
use crate::search::Search;
use crate::world::{Bounds, Rules};

fn policy(dialect: Dialect, wake_by: WakeBy, sync_done: SyncDone) -> Policy {
    Policy {
        dialect,
        wake_by,
        waking_timeout_ms: 1_000,
        lease_ms: 1_000,
        schedule: Schedule::Webhooks,
        retry_scale_milli: 5_000,
        // A failure after another one, and a time, is the last.
        give_up_after_ms: Some(1_000),
        keep_given_up_ms: 1_000,
        sync_done,
        min_interval_ms: 0,
        max_delay_ms: None,
        is_paused: false,
    }
}

fn webhooks() -> Policy {
    policy(Dialect::Webhooks, WakeBy::Webhook, SyncDone::Tail)
}

fn bounds(epochs: u64, attempts: u32, in_flight: usize) -> Bounds {
    Bounds { epochs, attempts, in_flight, pauses: 0 }
}

fn explore(name: &str, policy: Policy, bounds: Bounds) {
    let search = Search::over(Rules { machine: Consumer::step, policy, bounds });
    let search = search.unwrap_or_else(|broken| panic!("{name}: {broken}"));
    let (states, transitions, lives) = (search.states(), search.transitions, search.lives());
    println!("{name}: {states} states, {transitions} transitions, {lives:?} lives");
    assert!(states > 10_000, "{name}: the world is larger than {states} states");
}

#[test]
fn webhooks_keep_the_laws_in_every_interleaving() {
    explore("webhooks", webhooks(), bounds(3, 2, 1));
    explore("webhooks, answers", webhooks(), bounds(2, 2, 3));
}

#[test]
fn webhooks_that_are_paused_keep_the_laws_in_every_interleaving() {
    explore("paused", webhooks(), Bounds { pauses: 1, ..bounds(2, 1, 1) });
    let late = Policy { max_delay_ms: Some(1_000), ..webhooks() };
    explore("paused and late", late, Bounds { pauses: 1, ..bounds(1, 1, 1) });
}

#[test]
fn webhooks_that_collect_keep_the_laws_in_every_interleaving() {
    let policy = Policy { sync_done: SyncDone::Snapshot, ..webhooks() };
    let bounds = bounds(2, 1, 1);
    explore("late", Policy { max_delay_ms: Some(1_000), ..policy.clone() }, bounds);
    explore("spaced", Policy { min_interval_ms: 1_000, ..policy }, bounds);
}

#[test]
fn leases_keep_the_laws_in_every_interleaving() {
    let policy = policy(Dialect::Leases, WakeBy::Webhook, SyncDone::Snapshot);
    explore("leases", policy, bounds(2, 2, 1));
}

#[test]
fn work_that_is_claimed_keeps_the_laws_in_every_interleaving() {
    let policy = policy(Dialect::Leases, WakeBy::Pull, SyncDone::Snapshot);
    explore("claims", policy, bounds(2, 1, 1));
}

/// Takes every answer for one to the current wake.
fn hears_late_answers(
    consumer: &Consumer,
    given: &Given<'_>,
    input: &Input,
) -> Result<Transition, Rejected> {
    let mut input = input.clone();
    if let Input::Answered { epoch, .. } = &mut input {
        *epoch = consumer.epoch;
    }
    consumer.step(given, &input)
}

/// Takes whoever speaks for an earlier wake for the worker of this one.
fn hears_zombies(
    consumer: &Consumer,
    given: &Given<'_>,
    input: &Input,
) -> Result<Transition, Rejected> {
    let mut input = input.clone();
    if let Input::Callback(callback) = &mut input
        && callback.epoch < consumer.epoch
    {
        callback.epoch = consumer.epoch;
        callback.wake_id = consumer.wake_id.map(Ok);
    }
    consumer.step(given, &input)
}

/// Looks at the epoch of a callback, but not at the name of the wake.
fn hears_strangers(
    consumer: &Consumer,
    given: &Given<'_>,
    input: &Input,
) -> Result<Transition, Rejected> {
    let mut input = input.clone();
    if let Input::Callback(callback) = &mut input {
        callback.wake_id = None;
    }
    consumer.step(given, &input)
}

/// Lets a silent worker go, and leaves its work behind: the letter of the specification's table.
fn forgets_the_silent(
    consumer: &Consumer,
    given: &Given<'_>,
    input: &Input,
) -> Result<Transition, Rejected> {
    let late = consumer.deadline().is_some_and(|at| at <= given.now);
    if late && matches!((input, &consumer.phase), (Input::Timer { .. }, Phase::Live { .. })) {
        let consumer = Consumer { phase: Phase::Idle { wake_at: None }, ..consumer.clone() };
        return Ok(Transition { consumer, effects: Vec::new() });
    }
    consumer.step(given, input)
}

/// Believes that whatever was to be sent was sent, though the server has crashed since.
fn trusts_the_network(
    consumer: &Consumer,
    given: &Given<'_>,
    input: &Input,
) -> Result<Transition, Rejected> {
    if let (Input::Timer { in_flight: false }, Phase::Waking { .. }) = (input, &consumer.phase) {
        return Ok(Transition { consumer: consumer.clone(), effects: Vec::new() });
    }
    consumer.step(given, input)
}

/// Gives every attempt a name of its own.
fn renames_retries(
    consumer: &Consumer,
    given: &Given<'_>,
    input: &Input,
) -> Result<Transition, Rejected> {
    let mut step = consumer.step(given, input)?;
    if step.effects.iter().any(|effect| matches!(effect, Effect::Tell { .. })) {
        step.consumer.wake_id = Some(given.fresh_wake_id);
    }
    Ok(step)
}

/// Tells twice of the same work when it grows meanwhile.
fn wakes_whoever_is_awake(
    consumer: &Consumer,
    given: &Given<'_>,
    input: &Input,
) -> Result<Transition, Rejected> {
    let live = matches!(consumer.phase, Phase::Live { .. });
    if live && *input == Input::Appended && consumer.is_pending(given) {
        let rested = Consumer { phase: Phase::Idle { wake_at: None }, ..consumer.clone() };
        return rested.step(given, input);
    }
    consumer.step(given, input)
}

/// Goes on telling, paused or not.
fn is_never_paused(
    consumer: &Consumer,
    given: &Given<'_>,
    input: &Input,
) -> Result<Transition, Rejected> {
    let policy = Policy { is_paused: false, ..given.policy.clone() };
    consumer.step(&Given { policy: &policy, ..*given }, input)
}

/// Lets those rest who waited while it was paused.
fn forgets_to_go_on(
    consumer: &Consumer,
    given: &Given<'_>,
    input: &Input,
) -> Result<Transition, Rejected> {
    if *input == Input::Reviewed {
        return Ok(Transition { consumer: consumer.clone(), effects: Vec::new() });
    }
    consumer.step(given, input)
}

fn breaks(machine: Machine, law: &str) {
    let bounds = Bounds { pauses: 1, ..bounds(2, 2, 2) };
    let found = Search::over(Rules { machine, policy: webhooks(), bounds }).err();
    let found = found.unwrap_or_else(|| panic!("nobody noticed; expected {law}"));
    println!("{found}\n");
    assert!(found.contains(law), "expected {law}, found {found}");
}

#[test]
fn a_machine_that_hears_late_answers_is_found_out() {
    breaks(hears_late_answers, "what belongs to the past changes nothing");
}

#[test]
fn a_machine_that_hears_the_wrong_voices_is_found_out() {
    breaks(hears_zombies, "S3, S6: a foreign voice is not heard");
    breaks(hears_strangers, "S3, S6: a foreign voice is not heard");
}

#[test]
fn a_machine_that_forgets_work_is_found_out() {
    breaks(forgets_the_silent, "L1");
    breaks(trusts_the_network, "L1");
    breaks(forgets_to_go_on, "L1");
}

#[test]
fn a_machine_that_cannot_be_paused_is_found_out() {
    breaks(is_never_paused, "nobody is told while paused");
}

#[test]
fn a_machine_that_confuses_wakes_is_found_out() {
    breaks(renames_retries, "S2");
    breaks(wakes_whoever_is_awake, "wakes nobody who is awake");
}
