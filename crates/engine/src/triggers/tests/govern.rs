//! What operators do with triggers: what it takes, what follows, and what is written down.

use super::*;
use crate::app::{IndexPart, Part};
use crate::quota::Quotas;
use crate::secrets::TenantSecrets;

#[test]
fn adm_1_a_trigger_is_made_disabled_and_matches_once_it_is_enabled() {
    let mut world = World::new();
    let hook = world.make("a", json!({})).unwrap();
    assert_eq!((hook.version, hook.is_sending()), (1, false));
    world.write(vec![set("orders/o1", json!({}))]);
    assert_eq!(world.told(), []);
    world.change("a", TriggerChange::Enable).unwrap();
    world.write(vec![set("orders/o2", json!({}))]);
    assert_eq!(world.told(), [("a".into(), 1)]);
    let exists = TriggerRejection::Exists { id: TriggerId::parse("a").unwrap() };
    assert_eq!(world.make("a", json!({})).err(), Some(exists));
}

#[test]
fn rol_4_what_was_matched_waits_while_it_is_disabled_and_nothing_new_matches() {
    let mut world = World::new();
    world.enabled("a", json!({}));
    world.write(vec![set("orders/o1", json!({}))]);
    world.answer_all(Verdict::Failed, 1);
    world.change("a", TriggerChange::Disable).unwrap();
    world.write(vec![set("orders/o2", json!({}))]);
    world.bench.now = Millis(world.bench.now.0 + 600_000);
    world.fire_all();
    let phases: Vec<_> = world.deliveries().iter().map(|(.., it)| it.delivery.phase).collect();
    assert_eq!(phases, [Phase::Held]);
    world.change("a", TriggerChange::Enable).unwrap();
    world.fire_all();
    assert_eq!(world.answer_all(Verdict::Delivered, 1), 1);
}

#[test]
fn adm_2_a_change_needs_the_version_that_was_seen_and_the_same_is_no_change() {
    let mut world = World::new();
    world.make("a", json!({})).unwrap();
    let next = json!({"condition": "event.document.v == 1"});
    let update = || TriggerChange::Update { definition: define(next.clone()) };
    let hook = world.change_at("a", Some(1), update()).unwrap();
    assert_eq!(hook.version, 2);
    let stale = TriggerRejection::VersionMismatch { id: "a".into(), current: 2 };
    assert_eq!(world.change_at("a", Some(1), update()).err(), Some(stale));
    let rows = world.rows().len();
    assert_eq!(world.change_at("a", Some(2), update()).unwrap().version, 2);
    assert_eq!(world.rows().len(), rows, "nothing was changed");
    let missing = world.change("b", update()).err();
    assert_eq!(missing, Some(TriggerRejection::NotFound { id: "b".into() }));
}

#[test]
fn aud_3_what_nobody_has_signed_is_known_until_somebody_does() {
    let mut world = World::new();
    world.make("a", json!({})).unwrap();
    let elsewhere = || json!({"url": "https://hooks.example.com/2"});
    assert!(!world.trigger("a").is_signed);
    world.has_signed = true;
    world.change("a", TriggerChange::Enable).unwrap();
    assert!(world.trigger("a").is_signed);
    world.has_signed = false;
    world.update("a", json!({"label": "x"})).unwrap();
    assert!(world.trigger("a").is_signed, "it sends where it did");
    world.update("a", elsewhere()).unwrap();
    assert!(!world.trigger("a").is_signed, "on a server without keys");
    world.has_signed = true;
    world.change("a", TriggerChange::RollBack { version: 1 }).unwrap();
    world.make("b", elsewhere()).unwrap();
    assert!(world.trigger("a").is_signed && world.trigger("b").is_signed);
    let signed: Vec<_> = world.rows().iter().map(|row| row.actor.has_signed).collect();
    assert_eq!(signed, [false, false, true, false, false, true, true]);
}

#[test]
fn adm_4_versions_are_kept_and_gone_back_to() {
    let mut world = World::new();
    let hook = world.enabled("a", json!({"label": "v1"}));
    for number in 2..=100 {
        world.update("a", json!({"label": format!("v{number}")})).unwrap();
    }
    let (from, to) = keys::hook_versions(hook.id);
    let kept = world.bench.reader().keys(&from, &to, usize::MAX).unwrap();
    assert_eq!(kept.len(), 64);
    let gone = TriggerRejection::NoVersion { version: 1 };
    let back = |version| TriggerChange::RollBack { version };
    assert_eq!(world.change("a", back(1)).err(), Some(gone));
    let same = TriggerRejection::SameVersion { version: 100 };
    assert_eq!(world.change("a", back(100)).err(), Some(same));
    assert_eq!(world.change("a", back(50)).unwrap().version, 101);
    let trigger = world.trigger("a");
    assert_eq!(trigger.definition.label.as_deref(), Some("v50"));
    assert_eq!(trigger.deployment.state, State::Enabled);
}

/// However large definitions are, what is kept of them is bounded in bytes as well.
#[test]
fn adm_4_large_versions_are_fewer() {
    let mut world = World::new();
    let hook = world.make("a", json!({})).unwrap();
    for number in 0..60 {
        let headers = json!({"x-large": "h".repeat(15_500), "x-n": number.to_string()});
        let filters: Vec<_> = (0..32).map(|it| format!("orders/{}{it}*", "f".repeat(60))).collect();
        let url = format!("https://hooks.example.com/{}", "u".repeat(1_900));
        world.update("a", json!({"headers": headers, "filters": filters, "url": url})).unwrap();
    }
    let (from, to) = keys::hook_versions(hook.id);
    let kept = world.bench.reader().range(&from, &to, usize::MAX).unwrap();
    let bytes: usize = kept.iter().map(|(_, value)| value.len()).sum();
    assert!(
        kept.len() > 40 && kept.len() < 59 && bytes <= 1 << 20,
        "{} versions, {bytes} bytes",
        kept.len()
    );
}

#[test]
fn a_tenant_has_no_more_triggers_than_it_may_and_the_refusal_names_the_setting() {
    let quotas = Quotas { triggers: 2, ..Quotas::default() };
    let mut world = World::with(Settings { quotas, ..Settings::default() });
    world.make("a", json!({})).unwrap();
    world.make("b", json!({})).unwrap();
    let full = world.make("c", json!({})).unwrap_err();
    assert_eq!(full, TriggerRejection::TooManyTriggers { max: 2 });
    assert!(full.to_string().contains("--max-triggers"), "{full}");
    let (tenant, entry) = (world.tenant.clone(), world.entry());
    let delete =
        DeleteTrigger { tenant, id: "a".into(), expected: None, open: OpenDeliveries::Bury, entry };
    world.bench.when(&delete).answer();
    world.make("c", json!({})).unwrap();
}

#[test]
fn def_3_a_file_is_applied_whole_or_not_at_all() {
    let quotas = Quotas { triggers: 2, ..Quotas::default() };
    let mut world = World::with(Settings { quotas, ..Settings::default() });
    let apply = |world: &mut World, triggers: Vec<(&str, u64, Value)>| {
        let (tenant, entry) = (world.tenant.clone(), world.entry());
        let triggers = triggers.into_iter().map(|(id, seen, it)| TriggerDraft {
            id: TriggerId::parse(id).unwrap(),
            definition: define(it),
            seen,
        });
        let command =
            ApplyTriggers { tenant, triggers: triggers.collect(), created_by: None, entry };
        let applied = rejected(world.bench.when(&command).outcome);
        applied.map(|it| it.into_iter().map(|(_, result)| result).collect::<Vec<_>>())
    };
    let both = vec![("a", 0, json!({})), ("b", 0, json!({}))];
    let created = [AppliedTrigger::Created, AppliedTrigger::Created];
    assert_eq!(apply(&mut world, both).unwrap(), created);
    let changed = vec![("a", 1, json!({})), ("b", 1, json!({"label": "x"}))];
    let expected = [AppliedTrigger::Unchanged, AppliedTrigger::Updated];
    assert_eq!(apply(&mut world, changed).unwrap(), expected);
    let actions: Vec<_> = world.rows().iter().map(|row| row.action.to_string()).collect();
    assert_eq!(actions[1..], ["trigger.created", "trigger.created", "trigger.updated"]);
    let too_many = vec![("a", 1, json!({"label": "y"})), ("c", 0, json!({}))];
    let full = TriggerRejection::TooManyTriggers { max: 2 };
    assert_eq!(apply(&mut world, too_many), Err(full));
    let with =
        |id: &'static str, seen| vec![("a", 1, json!({"label": "y"})), (id, seen, json!({}))];
    let changed = TriggerRejection::VersionMismatch { id: "b".into(), current: 2 };
    for seen in [0, 1, 3] {
        assert_eq!(apply(&mut world, with("b", seen)), Err(changed.clone()), "{seen}");
    }
    let gone = TriggerRejection::Gone { id: "c".into() };
    assert_eq!(apply(&mut world, with("c", 1)), Err(gone), "it is not made once more");
    assert_eq!(world.trigger("a").definition.label, None, "nothing of it was done");
}

#[test]
fn aud_1_every_change_has_its_row_with_a_diff_and_no_secret() {
    let mut world = World::new();
    world.make("a", json!({"headers": {"authorization": "Bearer hunter2"}})).unwrap();
    world.change("a", TriggerChange::Enable).unwrap();
    world.update("a", json!({"url": "https://hooks.example.com/v2?key=hunter2"})).unwrap();
    world.change("a", TriggerChange::Disable).unwrap();
    let rotate = SecretChange::Rotate { version: version("whsec_second"), overlap_ms: 1_000 };
    world.secret(rotate).unwrap();
    world.secret(SecretChange::RevokePrevious).unwrap();
    let rows = world.rows();
    let said: Vec<_> = rows.iter().map(|row| (&*row.action, &*row.subject)).collect();
    let expected = [
        ("secret.created", "default"),
        ("trigger.created", "a"),
        ("trigger.enabled", "a"),
        ("trigger.updated", "a"),
        ("trigger.disabled", "a"),
        ("secret.rotated", "default"),
        ("secret.revoked", "default"),
    ];
    assert_eq!(said, expected);
    assert_eq!((rows[3].from_version, rows[3].to_version), (Some(1), Some(2)));
    for row in &rows {
        let diff = row.diff.as_deref().expect("something has changed");
        assert!(!diff.contains("hunter2") && !diff.contains("whsec"), "{diff}");
        assert_eq!(&*row.actor.name, "ops");
    }
    assert!(rows[2].diff.as_deref().unwrap().contains(r#""state":["disabled","enabled"]"#));
}

#[test]
fn sec_3_a_secret_is_rotated_with_overlap_and_revoked_early() {
    let mut world = World::new();
    let exists = world.secret(SecretChange::Create { version: version("x") }).unwrap_err();
    assert!(matches!(exists, TriggerRejection::SecretExists { .. }));
    let rotate = SecretChange::Rotate { version: version("whsec_second"), overlap_ms: 1_000 };
    world.secret(rotate).unwrap();
    let signing = |world: &World, after_ms: u64| -> Vec<String> {
        let secrets = world.bench.shared.domains.part::<TenantSecrets>();
        let secret = secrets.get(&world.tenant, "default").unwrap();
        let now = Millis(world.bench.now.0 + after_ms);
        secret.signing(now).map(|it| it.to_string()).collect()
    };
    // A server that starts anew knows what is durable.
    world.bench.reopen();
    assert_eq!(signing(&world, 999), ["whsec_second", "whsec_first"]);
    assert_eq!(signing(&world, 1_000), ["whsec_second"]);
    world.secret(SecretChange::RevokePrevious).unwrap();
    world.bench.reopen();
    assert_eq!(signing(&world, 0), ["whsec_second"]);
    // And follows whatever becomes durable.
    let (key, secrets) = (keys::trigger_secret(&world.tenant, "default"), TenantSecrets::default());
    let stored = world.bench.reader().get(&key).unwrap();
    secrets.follow(&key, stored.as_ref()).unwrap();
    assert!(secrets.get(&world.tenant, "default").is_some());
    secrets.follow(&key, None).unwrap();
    assert!(secrets.get(&world.tenant, "default").is_none());
}

#[test]
fn del_5_nothing_is_enabled_that_could_not_be_signed() {
    let mut world = World::new();
    world.make("a", json!({"secretsRef": "other"})).unwrap();
    let missing = TriggerRejection::NoSecret { name: "other".into() };
    assert_eq!(world.change("a", TriggerChange::Enable).err(), Some(missing.clone()));
    world.enabled("b", json!({}));
    assert_eq!(world.update("b", json!({"secretsRef": "other"})).err(), Some(missing));
    let used = world.secret(SecretChange::Delete).unwrap_err();
    assert!(matches!(used, TriggerRejection::SecretInUse { .. }), "{used}");
    world.change("b", TriggerChange::Disable).unwrap();
    assert_eq!(world.secret(SecretChange::Delete).unwrap(), None);
}

#[test]
fn rol_1_a_dry_run_counts_what_would_have_been_sent_and_sends_nothing() {
    let mut world = World::new();
    let condition = json!({"condition": "event.document.v >= 2"});
    world.make("a", condition.clone()).unwrap();
    world.change("a", TriggerChange::DryRun { candidate: None }).unwrap();
    assert_eq!(world.state("a"), State::DryRun);
    let writes = |world: &mut World| {
        for value in 0..4 {
            world.write(vec![set(&format!("orders/o{value}"), json!({"v": value}))]);
        }
        world.write(vec![set("orders/odd", json!({}))]);
        world.write(vec![set("rooms/r1", json!({"v": 9}))]);
    };
    writes(&mut world);
    assert_eq!(world.told(), []);
    let hook = world.trigger("a").hook.id;
    let run = super::super::notes::dry_run(&world.bench.reader(), hook).unwrap();
    let counts = run.counts(Millis(0), Millis::NEVER);
    assert_eq!((counts.evaluated, counts.matched, counts.eval_errors), (5, 2, 1));
    assert_eq!(run.samples.len(), 2);
    // Once it is enabled it matches as often as it would have (scenario 11).
    world.change("a", TriggerChange::Enable).unwrap();
    writes(&mut world);
    assert_eq!(world.told().len(), 2);
    let again = super::super::notes::dry_run(&world.bench.reader(), hook).unwrap();
    assert_eq!(again, run, "nothing runs dry any more");
}

#[test]
fn rol_1_a_candidate_runs_dry_beside_the_version_that_sends_on_the_same_changes() {
    let mut world = World::new();
    let hook = world.enabled("a", json!({"condition": "event.document.v > 0"}));
    let candidate = Some(define(json!({"condition": "event.document.v > 1"})));
    world.change("a", TriggerChange::DryRun { candidate }).unwrap();
    for value in 0..4 {
        world.write(vec![set("orders/o1", json!({"v": value}))]);
    }
    assert_eq!(world.told().len(), 3);
    let run = super::super::notes::dry_run(&world.bench.reader(), hook.id).unwrap();
    let counts = run.counts(Millis(0), Millis::NEVER);
    assert_eq!((counts.evaluated, counts.matched), (4, 2));
    assert_eq!((counts.live_evaluated, counts.live_matched), (4, 3));
    world.change("a", TriggerChange::EndDryRun).unwrap();
    assert_eq!(world.change("a", TriggerChange::EndDryRun), Err(TriggerRejection::NoDryRun));
    world.write(vec![set("orders/o1", json!({"v": 5}))]);
    let after = super::super::notes::dry_run(&world.bench.reader(), hook.id).unwrap();
    assert_eq!(after, run);
}

#[test]
fn a_deleted_trigger_leaves_its_letters_and_nothing_else() {
    let mut world = World::new();
    let hook = world.enabled("a", json!({"condition": "event.document.v == 1"}));
    world.write(vec![set("orders/o1", json!({"v": 1}))]);
    world.write(vec![set("orders/o2", json!({}))]);
    world.answer_all(Verdict::Failed, 1);
    let (tenant, entry) = (world.tenant.clone(), world.entry());
    let delete =
        DeleteTrigger { tenant, id: "a".into(), expected: None, open: OpenDeliveries::Bury, entry };
    world.bench.when(&delete).answer();
    world.write(vec![set("orders/o3", json!({"v": 1}))]);
    world.fire_all();
    let reader = world.bench.reader();
    let of = |(from, to): (bytes::Bytes, bytes::Bytes)| reader.keys(&from, &to, 9).unwrap().len();
    assert_eq!(of(keys::dead_letters(hook.id)), 1, "what had no end is a dead letter");
    assert_eq!(of(keys::hook_notes(hook.id)), 0);
    assert_eq!(of(keys::deliveries(hook.id)), 1);
    // Its name is free.
    world.make("a", json!({})).unwrap();
}

/// What memory knows is a fold over what is durable.
#[test]
fn memory_knows_the_same_after_a_start() {
    let mut world = World::new();
    world.enabled("a", json!({"collection": "ord*"}));
    world.enabled("b", json!({}));
    world.update("b", json!({"rollout": {"percent": 10}})).unwrap();
    world.make("c", json!({})).unwrap();
    let known = |world: &World| -> Vec<(Arc<Hook>, u64, Option<u64>)> {
        let partition = world.bench.shared.lock();
        let triggers = partition.index.of::<TriggerIndex>().of_tenant(&world.tenant).unwrap();
        let of = |entry: &Arc<TriggerEntry>| {
            let stable = entry.current.stable.as_ref().map(|(version, _)| *version);
            (entry.hook.clone(), entry.current.version, stable)
        };
        triggers.all().map(of).collect()
    };
    let before = known(&world);
    assert_eq!(before.iter().map(|it| it.2).collect::<Vec<_>>(), [None, Some(1), None]);
    world.bench.reopen();
    assert_eq!(known(&world), before);
    world.write(vec![set("orders/o1", json!({}))]);
    assert_eq!(world.told().len(), 2);
    let mut index = TriggerIndex::default();
    for (from, to) in index.ranges() {
        for (key, value) in world.bench.reader().range(&from, &to, usize::MAX).unwrap() {
            index.follow(&key, Some(&value)).unwrap();
            index.follow(&key, None).unwrap();
        }
    }
    assert_eq!(index.tenants().count(), 0, "what is removed is forgotten");
}
