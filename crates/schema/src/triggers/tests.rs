//! Bytes that are on disks already.

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::delivery::id::EventNo;
use reveille_core::document::change::ChangeKind;
use reveille_core::trigger::deployment::State;
use reveille_core::trigger::dry_run::{Counts, HourCount, Sample};
use reveille_core::trigger::rollout::{SloSlot, SloWindow};
use reveille_core::trigger::secret::{PreviousSecret, SecretVersion, SigningSecret};

use super::*;
use crate::codec::Record;
use crate::golden;

fn tenant() -> Tenant {
    Tenant::parse("acme").unwrap()
}

#[test]
fn keys_are_what_they_are_on_disks() {
    let hook = HookId(7);
    golden::check(&secret_key(&tenant(), "main"), "2861636d65006d61696e");
    golden::check_range(secret_keys(&tenant()), "2861636d6500", "2861636d6501");
    golden::check_range(all_secret_keys(), "28", "29");
    golden::check(&evaluation_errors_key(hook), "27000000000000000701");
    golden::check(&health_key(hook), "27000000000000000702");
    golden::check(&dry_run_hour_key(hook, 9), "2700000000000000070309");
    golden::check_range(dry_run_hour_keys(hook), "27000000000000000703", "27000000000000000704");
    golden::check(&dry_run_samples_key(hook), "27000000000000000704");
    let key = secret_key(&tenant(), "main");
    assert_eq!(parse_secret_key(&key), Some((tenant(), "main")));
    assert_eq!(parse_secret_key(b"\x28acme"), None);
}

#[test]
fn a_trigger_is_what_it_is_on_disks() {
    let stored = |version| StoredDefinition { version, definition: Bytes::from_static(b"{}") };
    let record = TriggerRecord {
        definition: Bytes::from_static(b"{1}"),
        state: State::RolledBack { is_active: true },
        since: EventNo(5),
        stable: Some(stored(2)),
        former: vec![FormerTrigger {
            current: stored(3),
            stable: Some(stored(1)),
            until: EventNo(9),
        }],
        candidate: Some(DryRunCandidate {
            definition: Bytes::from_static(b"{2}"),
            since: EventNo(6),
        }),
        dry_since: Some(EventNo(4)),
        kept: vec![KeptVersion { version: 2, bytes: 300 }],
        reason: Some("why".into()),
        is_unsigned: true,
    };
    golden::check_record(
        &record,
        "aa00437b317d010302050382024\
         27b7d04818403427b7d098201427b7d0582437b327d0606040781820219012c086377687909f5",
    );
    let plain = TriggerRecord {
        state: State::Disabled,
        stable: None,
        former: Vec::new(),
        candidate: None,
        dry_since: None,
        kept: Vec::new(),
        reason: None,
        is_unsigned: false,
        ..record
    };
    golden::check_record(&plain, "a400437b317d0100020507 80".replace(' ', "").as_str());
    for state in [State::Enabled, State::DryRun, State::RolledBack { is_active: false }] {
        let record = TriggerRecord { state, ..plain.clone() };
        assert_eq!(TriggerRecord::decode(&record.encode()), Ok(record));
    }
    assert!(golden::decode::<TriggerRecord>("a400437b317d010502050780").is_err(), "no such state");
}

#[test]
fn what_is_kept_beside_a_trigger_is_what_it_is_on_disks() {
    let errors = EvaluationErrors { count: 3, last: "no `a`".into(), at: Millis(9), version: 2 };
    golden::check_record(&errors, "a400030166 6e6f20606160020903 02".replace(' ', "").as_str());
    let slot = SloSlot { from: Millis(10), samples: 4, failed: 1, slow: 2 };
    let health = TriggerHealth {
        last_success_at: Some(Millis(8)),
        last_failure_at: Some(Millis(9)),
        last_error: Some("x".into()),
        version: 2,
        window: SloWindow { slots: vec![slot] },
    };
    golden::check_record(&health, "a500080109026178030204 81840a040102".replace(' ', "").as_str());
    let counts =
        Counts { evaluated: 5, matched: 2, eval_errors: 1, live_evaluated: 4, live_matched: 3 };
    let hour = DryRunHour(HourCount { from: Millis(0), counts });
    golden::check_record(&hour, "a6000001050202030104040503");
    let sample = |kind, seq| Sample { seq, at: Millis(7), kind, path: "a/b".into() };
    let kinds = [ChangeKind::Create, ChangeKind::Update, ChangeKind::Delete];
    let samples =
        DryRunSamples(kinds.into_iter().zip(1..).map(|(it, seq)| sample(it, seq)).collect());
    golden::check_record(
        &samples,
        "a1008384010700636 12f62840207016 3612f62840307026 3612f62".replace(' ', "").as_str(),
    );
}

#[test]
fn a_secret_is_what_it_is_on_disks() {
    let version = |sealed: &str, at| SecretVersion {
        sealed: sealed.into(),
        prefix: "wh".into(),
        created_at: Millis(at),
    };
    let secret = SigningSecret::new(version("1.a", 3));
    golden::check_record(&secret, "a30063312e61016277680203");
    let previous = Some(PreviousSecret { version: version("1.b", 1), valid_until: Millis(20) });
    let rotated = SigningSecret { previous, ..secret };
    golden::check_record(&rotated, "a70063312e610162776802030363312e620462776805010614");
    assert!(golden::decode::<SigningSecret>("a40063312e610162776802030614").is_err(), "a part");
}
