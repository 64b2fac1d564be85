//! The bytes of facts, and what of them is damage.

use reveille_core::delivery::hook::HookId;
use reveille_core::fact::access::CancelReason;
use reveille_core::fact::card::Card;
use reveille_core::fact::garden::{Garden, GardenRole, GardenSlug, MemberSpan, Membership};
use reveille_core::fact::name::ScopeId;
use reveille_core::fact::slot::{LiveValue, Slot};
use reveille_core::fact::statement::{Confidence, Statement};
use reveille_core::fact::subscription::{Cancelled, Channel, EventFilter, FactHookSpec, Wanted};
use reveille_core::fact::target::{Object, Target};
use reveille_core::fact::token::{Grant, Revoked, TokenRecord, Verb};
use reveille_core::fact::value::{ValueId, ValueKind};
use reveille_core::fact::{Fact, FactValue, Hlc};
use reveille_core::key::KeyHash;
use reveille_core::stream::StreamId;
use reveille_core::{Millis, Offset};

use super::*;
use crate::codec::Record;
use crate::golden::{check, check_range, check_record};

fn tenant() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn entity(name: &str) -> EntityUri {
    EntityUri::parse(name).unwrap()
}

fn slot_name(garden: Option<u64>) -> SlotName {
    let garden = garden.map(GardenNo);
    SlotName { garden, entity: entity("u:a"), relation: "at".into(), scope: Scope::Team }
}

#[test]
fn keys_have_these_bytes() {
    let acme = "61636d6500";
    let at = "0000000000000100";
    let none = "0000000000000000";
    check(&fact_key(&tenant(), FactNo(256)), &format!("30{acme}{at}"));
    let slot = format!("{acme}{at}753a6100617400{}", "7465616d");
    check(&slot_key(&tenant(), &slot_name(Some(256))), &format!("32{slot}"));
    let key = fact_of_key(&tenant(), &slot_name(Some(256)), FactNo(256));
    check(&key, &format!("31{slot}00{at}"));
    check_range(
        fact_of_keys(&tenant(), None, Some(&entity("u:a")), Some("at")),
        &format!("31{acme}{none}753a6100617400"),
        &format!("31{acme}{none}753a6100617401"),
    );
    check_range(
        slot_keys(&tenant(), Some(GardenNo(256)), None),
        &format!("32{acme}{at}"),
        &format!("32{acme}0000000000000101"),
    );
    check(&change_key(&tenant(), EventNo(256)), &format!("33{acme}{at}"));
    check(&clock_key(&tenant()), "3461636d65");
    check(&garden_key(&tenant(), GardenNo(256)), &format!("35{acme}{at}"));
    let membership = membership_key(&tenant(), GardenNo(256), &entity("u:a"));
    check(&membership, &format!("36{acme}{at}753a61"));
    check(
        &garden_of_key(&tenant(), &entity("u:a"), GardenNo(256)),
        &format!("37{acme}753a6100{at}"),
    );
    check(&card_key(&tenant(), &entity("u:a"), Scope::Team), &format!("38{acme}753a61007465616d"));
    check(&token_key(&tenant(), TokenNo(256)), &format!("39{acme}{at}"));
    check(&cancelled_key(&tenant(), "id"), &format!("3a{acme}6964"));
}

#[test]
fn keys_are_read_back() {
    for garden in [None, Some(256)] {
        let (name, no) = (slot_name(garden), FactNo(0x0100));
        assert_eq!(parse_slot_key(&slot_key(&tenant(), &name)), Some((tenant(), name.clone())));
        let key = fact_of_key(&tenant(), &name, no);
        assert_eq!(parse_fact_of_key(&key), Some((tenant(), name, no)));
    }
    assert_eq!(parse_fact_key(&fact_key(&tenant(), FactNo(7))), Some((tenant(), FactNo(7))));
    let garden = GardenNo(1 << 40);
    assert_eq!(parse_garden_key(&garden_key(&tenant(), garden)), Some((tenant(), garden)));
    let membership = membership_key(&tenant(), garden, &entity("u:a"));
    assert_eq!(parse_membership_key(&membership), Some((tenant(), garden, entity("u:a"))));
    assert_eq!(
        parse_garden_of_key(&garden_of_key(&tenant(), &entity("u:a"), garden)),
        Some(garden)
    );
    assert_eq!(parse_token_key(&token_key(&tenant(), TokenNo(9))), Some((tenant(), TokenNo(9))));
    assert_eq!(parse_cancelled_key(&cancelled_key(&tenant(), "x")), Some((tenant(), "x".into())));
    for bad in [&b""[..], b"\x30acme", b"\x30acme\0\0", b"\x39acme\0\0\0\0\0\0\0\0\x01"] {
        assert_eq!(parse_fact_key(bad), None);
        assert_eq!(parse_slot_key(bad), None);
        assert_eq!(parse_membership_key(bad), None);
    }
}

fn fact(garden: bool) -> FactRecord {
    let value = FactValue::from_stored(ValueKind::String, "\"x\"".into());
    let said = Statement {
        entity: entity("u:a"),
        relation: "at".into(),
        value,
        source: "s".into(),
        confidence: Confidence::CERTAIN,
        scope: Scope::Team,
        garden: garden.then(|| GardenSlug::parse("g").unwrap()),
        valid_until: garden.then_some(Millis(9)),
    };
    let fact = Fact {
        no: FactNo(256),
        said,
        garden: garden.then_some(GardenNo(512)),
        at: Millis(5),
        hlc: Hlc { ms: 5, counter: 2 },
        contradicted: garden,
    };
    let copy = CopyPlace { stream: StreamId(3), from: Offset::new(4), len: 5 };
    FactRecord { fact, copy: (!garden).then_some(copy) }
}

#[test]
fn facts_have_these_bytes() {
    for (garden, bytes) in [
        (
            true,
            "ae0063753a6101626174020003632278220461 73051a000f42400664746561 6d0761 67081902000909 0a050b050c020df5",
        ),
        (
            false,
            "ad0063753a6101626174020003632278220461 73051a000f42400664746561 6d0a050b050c020e030f04 1005",
        ),
    ] {
        let record = fact(garden);
        check(&record.encode(), &bytes.replace(' ', ""));
        assert_eq!(FactRecord::decode(FactNo(256), &record.encode()), Ok(record.clone()));
        for cut in 0..record.encode().len() {
            assert!(FactRecord::decode(FactNo(256), &record.encode()[..cut]).is_err(), "{cut}");
        }
    }
}

#[test]
fn records_have_these_bytes() {
    let live = |until| LiveValue { fact: FactNo(9), value: ValueId([7; 16]), until };
    let slot = Slot { live: vec![live(None), live(Some(Millis(3)))] };
    let id = "07".repeat(16);
    check_record(&slot, &format!("a100828209 50{id} 8309 50{id} 03").replace(' ', ""));
    let garden = Garden {
        no: GardenNo(256),
        slug: GardenSlug::parse("g").unwrap(),
        name: "G".into(),
        scope: Scope::Team,
        created_by: entity("u:a"),
        created_at: Millis(4),
        admins: 1,
        members: 2,
    };
    let head = "00190100016167026147036474 65616d0463753a61050406010702".replace(' ', "");
    let open = GardenRecord { garden: garden.clone(), closed: None };
    check_record(&open, &format!("a8{head}"));
    check_record(
        &GardenRecord { garden, closed: Some((512, Millis(6))) },
        &format!("aa{head}0819020 00906").replace(' ', ""),
    );
    let since = (8, Millis(1));
    let former = vec![MemberSpan { role: GardenRole::Reader, since, until: (9, Millis(2)) }];
    check_record(
        &Membership { current: Some((GardenRole::Writer, since)), former: Vec::new() },
        "a3000101080201",
    );
    check_record(&Membership { current: None, former }, "a10381850208010902");
    check_record(&Hlc { ms: 7, counter: 1 }, "a200070101");
}

#[test]
fn tokens_have_these_bytes() {
    let grant = Grant {
        no: TokenNo(256),
        tenant: tenant(),
        subject: entity("u:a"),
        verb: Verb::Subscribe,
        object: Object::Any,
        issued_at: Millis(1),
        expires_at: Millis(2),
    };
    let revoked = Revoked { at: Millis(3), reason: Some("r".into()) };
    for (revoked, bytes) in [
        (None, "a50063753a61010202612a03010402"),
        (Some(revoked), "a70063753a61010202612a03010402050306 6172"),
    ] {
        let record = TokenRecord { grant: grant.clone(), revoked };
        let encoded = encode_token(&record);
        check(&encoded, &bytes.replace(' ', ""));
        assert_eq!(decode_token(&tenant(), TokenNo(256), &encoded), Ok(record));
    }
    assert!(decode_token(&tenant(), TokenNo(256), &[]).is_err());
}

fn spec(key: Option<KeyHash>) -> SubscriptionSpec {
    let wanted = Wanted {
        target: Target::Entity(entity("u:a")),
        channel: Channel::Webhook("https://h".into()),
        filter: EventFilter::default(),
        scope: ScopeId::Global,
        idempotency_key: Some("k".into()),
    };
    let (subscriber, token) = (entity("u:b"), TokenNo(256));
    SubscriptionSpec { spec: FactHookSpec { wanted, subscriber, token, garden: None }, key }
}

#[test]
fn subscriptions_read_back_and_damage_is_no_subscription() {
    for key in [None, Some(KeyHash([5; 32]))] {
        let spec = spec(key);
        assert_eq!(SubscriptionSpec::decode(&spec.encode()), Ok(spec.clone()));
        let cancelled =
            Cancelled { at: Millis(8), why: CancelReason::MembershipEnded, event: EventNo(512) };
        let record = CancelledRecord {
            subscription: spec,
            hook: HookId(256),
            created_at: Millis(1),
            cancelled,
        };
        let bytes = record.encode();
        assert_eq!(CancelledRecord::decode(&bytes), Ok(record));
        for cut in 0..bytes.len() {
            assert!(CancelledRecord::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
    let hex = "aa006a656e746974793a753a61010002696874747073 3a2f2f6803030466676c6f62616c05616b0663753a6207190100";
    check(&spec(None).encode(), &hex.replace(' ', "").replacen("aa", "a8", 1));
}

#[test]
fn changes_and_cards_read_back() {
    let change = |kind| ChangeRecord {
        entity: entity("u:a"),
        scope: Scope::Team,
        garden: None,
        hlc: Hlc { ms: 5, counter: 2 },
        kind,
        copy: None,
    };
    let existing = vec![FactNo(1), FactNo(2)];
    let contradiction =
        ChangeKind::Contradiction { relation: "at".into(), fact: FactNo(3), existing };
    check_record(
        &change(contradiction),
        "a70063753a6101647465616d030504020562617406030782 0102".replace(' ', "").as_str(),
    );
    check_record(
        &change(ChangeKind::Card { summary: "s".into(), fact_count: 1 }),
        "a60063753a6101647465616d030504020861730901",
    );
    let card = Card {
        entity: entity("u:a"),
        scope: Scope::Team,
        summary: "s".into(),
        fact_count: 2,
        refreshed_at: Millis(3),
        hlc: Hlc { ms: 4, counter: 0 },
    };
    let bytes = encode_card(&card);
    check(&bytes, "a500617301020203030404 00".replace(' ', "").as_str());
    assert_eq!(decode_card(entity("u:a"), Scope::Team, &bytes), Ok(card));
}
