//! What may be subscribed to, and which two subscriptions are one.

use super::super::name::Scope;
use super::*;
use crate::delivery::outcome::ErrorKind;
use crate::delivery::policy::{Letters, Outcome, Verdict};

const RULES: SubscriptionRules = SubscriptionRules { wakes: false, http_loopback: false };
const AGENT: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn request() -> SubscriptionRequest {
    SubscriptionRequest {
        target: Some("scope:company".to_owned()),
        on_change: Some("webhook".to_owned()),
        webhook_url: Some("https://example.com/hook".to_owned()),
        ..SubscriptionRequest::default()
    }
}

fn wake() -> SubscriptionRequest {
    SubscriptionRequest {
        on_change: Some("wake".to_owned()),
        webhook_url: None,
        wake_agent_id: Some(AGENT.to_owned()),
        ..request()
    }
}

fn entity(text: &str) -> EntityUri {
    EntityUri::parse(text).unwrap()
}

#[test]
fn s_3_a_request_becomes_what_is_wanted() {
    let wanted = request().judge(RULES).unwrap();
    assert_eq!(wanted.target, Target::Scope(ScopeId::One(Scope::Company)));
    assert_eq!(wanted.channel, Channel::Webhook("https://example.com/hook".into()));
    assert_eq!(wanted.scope, ScopeId::One(Scope::Company));
    assert_eq!(wanted.filter.to_string(), "fact_assert,fact_retract");
    let about = SubscriptionRequest { target: Some("entity:User:A".to_owned()), ..request() };
    let wanted = about.judge(RULES).unwrap();
    assert_eq!(wanted.scope, ScopeId::Global);
    assert_eq!(wanted.target.to_string(), "entity:user:a");
    let limited = SubscriptionRequest { scope: Some("garden:atlas".to_owned()), ..about };
    assert_eq!(limited.judge(RULES).unwrap().scope.to_string(), "garden:atlas");
}

#[test]
fn s_5_s_6_s_7_s_8_whatever_is_no_subscription_is_refused_with_its_word() {
    let with = |change: &dyn Fn(&mut SubscriptionRequest)| {
        let mut request = request();
        change(&mut request);
        request.judge(RULES).map_err(SubscriptionError::code)
    };
    let some = |text: &str| Some(text.to_owned());
    let target = |text: Option<&str>| with(&|it| it.target = text.map(str::to_owned));
    assert_eq!(target(None), Err("invalid_target"));
    assert_eq!(target(Some("global")), Err("invalid_target"));
    for on_change in [None, Some(""), Some("email"), Some("Webhook")] {
        let found = with(&|it| it.on_change = on_change.map(str::to_owned));
        assert_eq!(found, Err("invalid_on_change"));
    }
    for url in [
        None,
        Some("http://example.com/h"),
        Some("ftp://example.com/h"),
        Some("https://"),
        Some("https:///h"),
        Some("https://user:pw@h/"),
        Some("https://h/#f"),
        Some("https://h:0/"),
        Some("https://h:x/"),
        Some("https://h:70000/"),
        Some("https://[::1/"),
        Some("https://a b/"),
        Some("https://h\\@evil/"),
        Some("//h/"),
        Some("http://127.0.0.1/"),
        Some("http://localhost/"),
    ] {
        let found = with(&|it| it.webhook_url = url.map(str::to_owned));
        assert_eq!(found, Err("invalid_webhook_url"), "{url:?}");
    }
    let long = format!("https://h/{}", "x".repeat(2_048));
    assert_eq!(with(&|it| it.webhook_url = Some(long.clone())), Err("invalid_webhook_url"));
    assert_eq!(with(&|it| it.wake_agent_id = some(AGENT)), Err("invalid_wake_agent_id"));
    for filter in [vec![], vec!["nope"], vec!["subscription_cancelled_access_revoked"]] {
        let names: Vec<String> = filter.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(with(&|it| it.event_filter = Some(names.clone())), Err("invalid_event_filter"));
    }
    for key in ["", "a\n", &"x".repeat(129)] {
        assert_eq!(with(&|it| it.idempotency_key = some(key)), Err("invalid_idempotency_key"));
    }
    assert!(with(&|it| it.idempotency_key = some(&"é".repeat(128))).is_ok());
    for scope in ["public", "global", "nowhere"] {
        assert_eq!(with(&|it| it.scope = some(scope)), Err("scope_mismatch"), "{scope}");
    }
    assert!(with(&|it| it.scope = some("company")).is_ok());
}

#[test]
fn s_6_loopback_needs_no_tls_where_the_server_says_so() {
    let rules = SubscriptionRules { http_loopback: true, ..RULES };
    let judge = |url: &str| {
        SubscriptionRequest { webhook_url: Some(url.to_owned()), ..request() }.judge(rules)
    };
    for good in ["http://127.0.0.1:8080/h", "http://localhost", "http://[::1]:9/?a=b", "HTTPS://h"]
    {
        assert!(judge(good).is_ok(), "{good}");
    }
    for bad in ["http://example.com/", "http://127.0.0.1.example.com/", "http://127.0.0.2/"] {
        assert_eq!(judge(bad), Err(SubscriptionError::WebhookUrl), "{bad}");
    }
}

#[test]
fn s_7_a_wake_needs_a_server_that_wakes_and_an_agent() {
    assert_eq!(wake().judge(RULES), Err(SubscriptionError::WakeNotSupported));
    // Whatever else is wrong with the shape comes first; the agent is none of it there.
    let nobody = SubscriptionRequest { wake_agent_id: None, ..wake() };
    assert_eq!(nobody.judge(RULES), Err(SubscriptionError::WakeNotSupported));
    let bent = SubscriptionRequest { event_filter: Some(Vec::new()), ..wake() };
    assert_eq!(bent.judge(RULES), Err(SubscriptionError::EventFilter));
    let rules = SubscriptionRules { wakes: true, ..RULES };
    let wanted = wake().judge(rules).unwrap();
    assert_eq!(wanted.channel, Channel::Wake(AGENT.into()));
    assert_eq!(wanted.policy().transport, Transport::Append);
    assert_eq!(nobody.judge(rules), Err(SubscriptionError::WakeAgent));
    for agent in ["", "a", "../../x", "0f8fad5b-d9cb-469f-a165-70867728950"] {
        let bad = SubscriptionRequest { wake_agent_id: Some(agent.to_owned()), ..wake() };
        assert_eq!(bad.judge(rules), Err(SubscriptionError::WakeAgent), "{agent}");
    }
    let both = SubscriptionRequest { webhook_url: request().webhook_url, ..wake() };
    assert_eq!(both.judge(rules), Err(SubscriptionError::WakeAgent));
}

#[test]
fn s_12_a_key_decides_alone_and_without_one_everything_does() {
    let (alice, bob) = (entity("user:alice"), entity("user:bob"));
    let wanted = |request: &SubscriptionRequest| request.judge(RULES).unwrap();
    let filtered = |names: &[&str]| {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        wanted(&SubscriptionRequest { event_filter: Some(names), ..request() })
    };
    let plain = wanted(&request());
    let same = filtered(&["fact_retract", "fact_assert", "fact_assert"]);
    assert_eq!(plain.dedup(&alice), same.dedup(&alice));
    assert_ne!(plain.dedup(&alice), plain.dedup(&bob));
    assert_ne!(plain.dedup(&alice), filtered(&["fact_assert"]).dedup(&alice));
    let elsewhere =
        SubscriptionRequest { webhook_url: Some("https://example.com/".to_owned()), ..request() };
    assert_ne!(plain.dedup(&alice), wanted(&elsewhere).dedup(&alice));
    let keyed = |request: SubscriptionRequest| {
        wanted(&SubscriptionRequest { idempotency_key: Some("k".to_owned()), ..request })
    };
    assert_eq!(keyed(request()).dedup(&alice), keyed(elsewhere).dedup(&alice));
    assert_ne!(keyed(request()).dedup(&alice), keyed(request()).dedup(&bob));
    assert_ne!(keyed(request()).dedup(&alice), plain.dedup(&alice));
}

#[test]
fn s_18_ten_attempts_with_pauses_that_double() {
    let policy = request().judge(RULES).unwrap().policy();
    assert_eq!((policy.attempts, policy.timeout_ms), (10, 10_000));
    let pauses: Vec<u64> = (1..=9).map(|n| policy.backoff.delay_ms(n, 77) / 1_000).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256]);
    for n in [10, 40, 1_000] {
        assert_eq!(policy.backoff.delay_ms(n, 77), 300_000, "{n}");
    }
    assert_eq!(policy.letters, Letters::GoWithHook);
    assert_eq!(policy.transport, Transport::Http);
}

#[test]
fn s_19_s_20_what_an_answer_means() {
    let policy = request().judge(RULES).unwrap().policy();
    let answered = |status| policy.judge(Outcome::Answered { status, retry_after_s: None });
    for status in [200, 201, 202, 204, 299] {
        assert_eq!(answered(status), Verdict::Delivered, "{status}");
    }
    for status in [301, 302, 304, 400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504] {
        assert_eq!(answered(status), Verdict::Failed, "{status}");
    }
    assert_eq!(answered(410), Verdict::Ends);
    for kind in [ErrorKind::Timeout, ErrorKind::Connect, ErrorKind::Dns, ErrorKind::Tls] {
        assert_eq!(policy.judge(Outcome::Failed(kind)), Verdict::Failed, "{kind:?}");
    }
}

#[test]
fn s_9_an_event_matches_by_kind_scope_garden_and_entity() {
    let alice = entity("user:alice");
    let spec = |target: &str, scope: Option<&str>, garden| FactHookSpec {
        wanted: SubscriptionRequest {
            target: Some(target.to_owned()),
            scope: scope.map(str::to_owned),
            ..request()
        }
        .judge(RULES)
        .unwrap(),
        subscriber: alice.clone(),
        token: TokenNo(1),
        garden,
    };
    let bob = entity("user:bob");
    let event = |kind, entity, scope, garden| EventSubject { kind, entity, scope, garden };
    let said = FactEventKind::Assert;
    let atlas = Some(GardenNo(5));
    for (spec, event, expected) in [
        (spec("scope:global", None, None), event(said, &bob, Scope::Local, None), true),
        (spec("scope:global", None, None), event(said, &bob, Scope::Local, atlas), true),
        (spec("scope:company", None, None), event(said, &bob, Scope::Company, None), true),
        (spec("scope:company", None, None), event(said, &bob, Scope::Team, None), false),
        (spec("scope:garden:atlas", None, atlas), event(said, &bob, Scope::Team, atlas), true),
        (spec("scope:garden:atlas", None, atlas), event(said, &bob, Scope::Team, None), false),
        // A garden that was made again under the slug is another.
        (
            spec("scope:garden:atlas", None, atlas),
            event(said, &bob, Scope::Team, Some(GardenNo(6))),
            false,
        ),
        (spec("scope:garden:atlas", None, None), event(said, &bob, Scope::Team, None), false),
        (spec("entity:user:bob", None, None), event(said, &bob, Scope::Team, None), true),
        (spec("entity:user:alice", None, None), event(said, &bob, Scope::Team, None), false),
        (spec("entity:user:bob", Some("team"), None), event(said, &bob, Scope::Team, None), true),
        (spec("entity:user:bob", Some("team"), None), event(said, &bob, Scope::Local, None), false),
        (
            spec("scope:global", None, None),
            event(FactEventKind::Card, &bob, Scope::Local, None),
            false,
        ),
    ] {
        assert_eq!(spec.matches(&event), expected, "{spec:?} {event:?}");
    }
}

#[test]
fn filters_are_sets_that_are_stored_as_bits() {
    for bits in 1..16 {
        let filter = EventFilter::from_bits(bits).unwrap();
        assert_eq!(filter.bits(), bits);
        assert_eq!(EventFilter::parse(filter.kinds().map(FactEventKind::as_str)), Ok(filter));
    }
    for bits in [0, 16, 17, 255] {
        assert_eq!(EventFilter::from_bits(bits), None);
    }
    let kind = FactEventKind::parse("subscription_cancelled_access_revoked");
    assert_eq!(kind, Some(FactEventKind::Cancelled));
}

#[test]
fn s_15_an_event_has_one_name_per_subscription() {
    let (hook, event) = (HookId(3), EventNo(70));
    let id = event_id(hook, event);
    assert_eq!(parse_event_id(hook, &id), Some(event));
    assert_eq!(parse_event_id(HookId(4), &id), None);
    assert_eq!(parse_event_id(hook, "x"), None);
    assert_eq!(parse_event_id(hook, &super::super::statement::FactNo(70).id()), None);
}

#[test]
fn s_21_the_replay_window_ends() {
    assert!(is_replayable(Millis(0), Millis(3_600_000), 3_600));
    assert!(!is_replayable(Millis(0), Millis(3_600_001), 3_600));
    assert!(is_replayable(Millis(5), Millis(0), 0));
}
