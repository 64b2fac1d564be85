//! What outcomes mean, by the rules of a hook.

use super::super::{AttemptRecord, Delivery, Given, Input, Phase};
use super::*;
use crate::time::Millis;

fn policy() -> Policy {
    let backoff = Backoff { base_ms: 1_000, cap_ms: 30_000, jitter: Jitter::Shortened };
    Policy::new(5_000, 10, backoff)
}

fn status(status: u16) -> Outcome {
    Outcome::Answered { status, retry_after_s: None }
}

fn busy(status: u16, seconds: u64) -> Outcome {
    Outcome::Answered { status, retry_after_s: Some(seconds) }
}

#[test]
fn without_rules_all_but_what_no_repetition_changes_is_tried_again() {
    let policy = policy();
    for good in [200, 204, 299] {
        assert_eq!(policy.judge(status(good)), Verdict::Delivered);
    }
    for bad in [100, 199, 300, 302, 400, 404, 410, 429, 500, 503, 599, 999] {
        assert_eq!(policy.judge(status(bad)), Verdict::Failed, "{bad}");
    }
    assert_eq!(policy.judge(Outcome::Appended), Verdict::Delivered);
    let of_streams = [ErrorKind::StreamClosed, ErrorKind::StreamMismatch];
    for kind in ErrorKind::ALL {
        let is_final = of_streams.contains(&kind);
        let verdict = if is_final { Verdict::Dead(DeadReason::Refused) } else { Verdict::Failed };
        assert_eq!(policy.judge(Outcome::Failed(kind)), verdict, "{kind:?}");
    }
    assert_eq!(policy.judge(Outcome::Unreadable), Verdict::Failed);
    let refused = |refusal| policy.judge(Outcome::Refused(refusal));
    assert_eq!(refused(Refusal::SecretMissing), Verdict::Failed);
    assert_eq!(refused(Refusal::PayloadTooLarge), Verdict::Dead(DeadReason::PayloadTooLarge));
    assert_eq!(refused(Refusal::HeadersTooLarge), Verdict::Dead(DeadReason::HeadersTooLarge));
}

#[test]
fn the_first_rule_that_fits_decides() {
    let rule = |when, action| Rule { when, action };
    let codes = |text| When::codes(text).unwrap();
    let rules = vec![
        rule(codes("404"), Action::Drop),
        rule(codes("409"), Action::Retry),
        rule(codes("451"), Action::End),
        rule(codes("4xx"), Action::Dead),
        rule(When::Kind(ErrorKind::Redirect), Action::Dead),
        rule(When::Kind(ErrorKind::Blocked), Action::Dead),
        rule(When::Kind(ErrorKind::Secret), Action::Dead),
        rule(When::Kind(ErrorKind::Dns), Action::Dead),
        rule(When::Kind(ErrorKind::StreamClosed), Action::Drop),
        rule(When::Kind(ErrorKind::StreamMismatch), Action::Retry),
        rule(When::Unreadable, Action::Dead),
    ];
    let policy = Policy { rules, refused: StatusSet::Final4xx, ends: Some(410), ..policy() };
    for (outcome, verdict) in [
        (status(200), Verdict::Delivered),
        (status(404), Verdict::Dropped(DropReason::Status)),
        // Rules come before the statuses that are final otherwise.
        (status(409), Verdict::Failed),
        (Outcome::Failed(ErrorKind::StreamClosed), Verdict::Dropped(DropReason::Status)),
        (Outcome::Failed(ErrorKind::StreamMismatch), Verdict::Failed),
        (status(451), Verdict::Ends),
        (status(410), Verdict::Dead(DeadReason::Refused)),
        (status(429), Verdict::Dead(DeadReason::Refused)),
        (status(500), Verdict::Failed),
        (status(302), Verdict::Dead(DeadReason::Redirect)),
        (Outcome::Failed(ErrorKind::Blocked), Verdict::Dead(DeadReason::Blocked)),
        (Outcome::Failed(ErrorKind::Dns), Verdict::Dead(DeadReason::Exhausted)),
        (Outcome::Failed(ErrorKind::Timeout), Verdict::Failed),
        (Outcome::Refused(Refusal::SecretMissing), Verdict::Dead(DeadReason::SecretMissing)),
        (Outcome::Unreadable, Verdict::Dead(DeadReason::Corrupt)),
    ] {
        assert_eq!(policy.judge(outcome), verdict, "{outcome:?}");
    }
}

#[test]
fn codes_are_a_status_a_class_or_a_range() {
    let is = |text, first, last| {
        assert_eq!(When::codes(text), Ok(When::Status { first, last }), "{text}");
    };
    is("404", 404, 404);
    is("5xx", 500, 599);
    is("500-503", 500, 503);
    for bad in [
        "", "4", "0404", "200", "2xx", "6xx", "600", "xx", "4x", "503-500", "404-", "+40", "-",
        "٤٠٤",
    ] {
        assert_eq!(When::codes(bad), Err(BadCodes), "{bad}");
    }
}

#[test]
fn an_endpoint_that_is_busy_may_ask_for_patience_up_to_the_longest_pause() {
    let hears = Policy { retry_after: true, ..policy() };
    assert_eq!(hears.judge(busy(429, 7)), Verdict::FailedFor { ms: 7_000 });
    assert_eq!(hears.judge(busy(503, u64::MAX)), Verdict::FailedFor { ms: 30_000 });
    assert_eq!(hears.judge(busy(500, 7)), Verdict::Failed);
    assert_eq!(policy().judge(busy(429, 7)), Verdict::Failed);
    // A pause is never shorter for it.
    for (asked, expected) in [(0, 1_000), (1, 1_000), (20, 20_000), (3_600, 30_000)] {
        let after = fail(&hears, &[(Some(429), Some(asked), 1)]);
        assert_eq!(after.phase, Phase::Pending { at: Millis(expected) }, "{asked}");
    }
}

/// A delivery whose attempts had these statuses, asked for this patience and took so long.
fn fail(policy: &Policy, attempts: &[(Option<u16>, Option<u64>, u64)]) -> Delivery {
    let given = Given {
        now: Millis(0),
        random: 0,
        policy,
        poison: policy.poison,
        retry_scale_milli: 1_000,
        active: true,
        began_at: Millis(0),
    };
    let mut delivery = Delivery::begin(&given, true).delivery;
    for (number, (status, retry_after_s, took_ms)) in (1..).zip(attempts) {
        let outcome = match status {
            Some(status) => Outcome::Answered { status: *status, retry_after_s: *retry_after_s },
            None => Outcome::Failed(ErrorKind::Connect),
        };
        let attempt = AttemptRecord {
            status: *status,
            kind: outcome.kind(),
            retry_after_s: *retry_after_s,
            error: Some("failed".into()),
            ..AttemptRecord::new(number, given.now, *took_ms)
        };
        let verdict = policy.judge(outcome);
        delivery = delivery.step(&given, Input::Answered { attempt, verdict }).delivery;
        if let Phase::Pending { at } = delivery.phase {
            let later = Given { now: at, ..given };
            let leased = delivery.step(&later, Input::Timer { in_flight: false }).delivery;
            if usize::try_from(number).unwrap() < attempts.len() {
                delivery = leased;
            }
        }
    }
    delivery
}

fn is_poisoned(policy: &Policy, attempts: &[(Option<u16>, Option<u64>, u64)]) -> bool {
    matches!(fail(policy, attempts).phase, Phase::Dead { why: DeadReason::Poison, .. })
}

#[test]
fn three_quick_failures_alike_are_poison_where_the_policy_says_so() {
    let plain = policy();
    let poison = Policy { poison: Some(Poison { attempts: 3, within_ms: 250 }), ..policy() };
    let same = [(Some(500), None, 250), (Some(500), None, 0), (Some(500), None, 3)];
    assert!(is_poisoned(&poison, &same));
    assert!(!is_poisoned(&plain, &same), "there is no such rule");
    assert!(!is_poisoned(&poison, &same[..2]), "two are not enough");
    assert!(is_poisoned(&poison, &[(None, None, 1); 3]), "nobody answers");
    let slow = [same[0], (Some(500), None, 251), same[2]];
    assert!(!is_poisoned(&poison, &slow), "one was slow");
    let unlike = [same[0], (Some(502), None, 3), same[2]];
    assert!(!is_poisoned(&poison, &unlike), "one was another");
    let mixed = [same[0], (None, None, 3), same[2]];
    assert!(!is_poisoned(&poison, &mixed), "one had no answer");
    assert!(!is_poisoned(&poison, &[(Some(429), None, 1); 3]), "429 asks for patience");
    assert!(!is_poisoned(&poison, &[(Some(503), Some(1), 1); 3]), "and so does this 503");
    assert!(is_poisoned(&poison, &[(Some(503), None, 1); 3]), "this one does not");
    let late = [(Some(404), None, 1), same[0], same[1], same[2]];
    assert!(is_poisoned(&poison, &late), "the last three count");
    let off = Policy { poison: Some(Poison { attempts: 0, within_ms: 250 }), ..policy() };
    assert!(!is_poisoned(&off, &same), "none turns it off");
}

#[test]
fn what_could_not_be_signed_is_no_poison() {
    let poison = Poison { attempts: 3, within_ms: 250 };
    let attempts = |kind: ErrorKind| {
        let failed = |number| AttemptRecord {
            error: Some("it failed".into()),
            kind: Some(kind),
            ..AttemptRecord::new(number, Millis(9), 0)
        };
        [1, 2, 3].map(failed)
    };
    assert!(poison.is_in(&attempts(ErrorKind::Connect)), "nobody listens");
    assert!(!poison.is_in(&attempts(ErrorKind::Secret)));
}

#[test]
fn a_delivery_that_runs_out_of_attempts_says_what_the_last_of_them_lacked() {
    let once = Policy { attempts: 1, ..policy() };
    let given = Given {
        now: Millis(9),
        random: 0,
        policy: &once,
        poison: None,
        retry_scale_milli: 1_000,
        active: true,
        began_at: Millis(0),
    };
    for (kind, why) in [
        (ErrorKind::Secret, DeadReason::SecretMissing),
        (ErrorKind::Blocked, DeadReason::Blocked),
        (ErrorKind::Timeout, DeadReason::Exhausted),
    ] {
        let attempt = AttemptRecord { kind: Some(kind), ..AttemptRecord::new(1, Millis(9), 1) };
        let begun = Delivery::begin(&given, true).delivery;
        let input = Input::Answered { attempt, verdict: Verdict::Failed };
        let dead = begun.step(&given, input).delivery;
        assert_eq!(dead.phase, Phase::Dead { at: Millis(9), why });
    }
}
