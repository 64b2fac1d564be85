//! The bytes of documents, and what of them is damage.

use std::sync::Arc;

use reveille_core::Millis;
use reveille_core::document::change::{ChangeHead, Lsn};
use reveille_core::document::idempotency::{BodyHash, WriteEnd, WriteRecord};
use reveille_core::document::order::{Direction, SortField};
use reveille_core::document::snapshot::{Data, Document};

use super::*;
use crate::codec::Record;
use crate::golden::{check, check_range, check_record, decode};

fn tenant() -> Tenant {
    Tenant::parse("acme").unwrap()
}

fn document(data: Option<&str>) -> Document {
    let data = data.map(|json| Arc::new(Data::from_json(json.as_bytes()).unwrap()));
    Document { version: 3, created_at: Millis(5), updated_at: Millis(700), data }
}

fn definition(collection: &str) -> IndexDefinition {
    let fields = [("status", Direction::Asc), ("createdAt", Direction::Desc)];
    let fields = fields.map(|(name, direction)| SortField::new(name, direction).unwrap());
    let collection = CollectionPattern::parse(collection).unwrap();
    IndexDefinition::new(collection, fields.to_vec()).unwrap()
}

#[test]
fn records_have_these_bytes() {
    check_record(&document(Some("{\"a\":1}")), "a400030105021902bc03477b2261223a317d");
    check_record(&document(None), "a300030105021902bc");
    let lsn = Some(Lsn { second: 9, ordinal: 2 });
    check_record(&ChangeHead { seq: 4, lsn, rules_seq: None }, "a3000401090202");
    let head = ChangeHead { seq: 4, lsn, rules_seq: Some(3) };
    check_record(&head, "a40004010902020303");
    check_record(&RulesRecord { version: 256, source: "{}".into() }, "a20019010001627b7d");
    let record = |state| IndexRecord {
        definition: definition("rooms/*/messages"),
        state,
        declared_at: Millis(8),
    };
    let head =
        "a60070726f6f6d732f2a2f6d657373616765730182826673746174757300826963726561746564417401";
    let from = Bytes::from_static(b"\x20ab");
    check_record(
        &record(IndexState::Building { from, documents: 6 }),
        &format!("{head}0200034320616204060508"),
    );
    check_record(&record(IndexState::Ready), &format!("{head}0201034004000508"));
    check_record(&record(IndexState::Removing), &format!("{head}0202034004000508"));
    let outcome = WriteRecord {
        body: BodyHash([7; 32]),
        end: WriteEnd::PreconditionFailed,
        message: "no".into(),
        expires: Millis(9),
    };
    check_record(&outcome, &format!("a4005820{}010302626e6f0309", "07".repeat(32)));
}

#[test]
fn what_cannot_be_is_damage() {
    for hex in ["a0", "a20001034161", "a20001034131"] {
        assert!(decode::<Document>(hex).is_err(), "no document: {hex}");
    }
    assert!(decode::<ChangeHead>("a200010102").is_err(), "half an lsn");
    let hash = "07".repeat(32);
    assert!(decode::<WriteRecord>(&format!("a3005820{hash}01060309")).is_err(), "no end");
    for hex in [
        "a200617801 80",
        "a2006178018182617802",
        "a300617801818261780002 03",
        "a2006178018182626964 00",
        "a2006078018182617800",
    ] {
        assert!(decode::<IndexRecord>(&hex.replace(' ', "")).is_err(), "no index: {hex}");
    }
}

#[test]
fn keys_have_these_bytes() {
    let (tenant, no) = (tenant(), IndexNo(258));
    let path = DocumentPath::parse("rooms/r1").unwrap();
    check(&document_key(&tenant, &path), "2061636d6500726f6f6d73007231");
    let rooms = path.collection();
    check_range(
        document_keys(&tenant, rooms),
        "2061636d6500726f6f6d7300",
        "2061636d6500726f6f6d7301",
    );
    let pattern = CollectionPattern::parse("rooms/*/messages").unwrap();
    check_range(
        document_keys_of(&tenant, &pattern),
        "2061636d6500726f6f6d732f",
        "2061636d6500726f6f6d7330",
    );
    check_range(tenant_document_keys(&tenant), "2061636d6500", "2061636d6501");
    check_range(all_document_keys(), "20", "21");
    check(&index_key(&tenant, no), "2261636d650000000102");
    check_range(index_keys(&tenant), "2261636d6500", "2261636d6501");
    check_range(all_index_keys(), "22", "23");
    check_range(all_index_entry_keys(&tenant, no), "2161636d650000000102", "2161636d650000000103");
    check(&index_entry_bound(&tenant, no, rooms, b"x"), "2161636d650000000102726f6f6d730078");
    let key = IdempotencyKey::parse("k").unwrap();
    check(&write_outcome_key(&tenant, "id", &key), "2361636d65006964006b");
    check_range(all_write_outcome_keys(), "23", "24");
    check(&change_head_key(&tenant), "2461636d65");
    check_range(change_place_keys(&tenant, 258), "2561636d65000000000000000102", "2561636d6501");
    check(&rules_key(&tenant), "2661636d65");
    check_range(all_rules_keys(), "26", "27");
}

#[test]
fn keys_read_back() {
    let tenant = tenant();
    let path = DocumentPath::parse("rooms/r1/messages/m.9").unwrap();
    let key = document_key(&tenant, &path);
    assert_eq!(parse_document_key(&key), Some((tenant.clone(), path.clone())));
    assert_eq!(document_bound(&tenant, path.collection(), b"m.9"), key);
    let pattern = CollectionPattern::parse("rooms/*/messages").unwrap();
    let (from, to) = document_keys_of(&tenant, &pattern);
    assert!(from <= key && key < to);
    assert_eq!(parse_document_key(&key[..key.len() - 3]), None);
    assert_eq!(parse_document_key(b"\x20acme\0rooms\0r1\0"), None);
    let no = IndexNo(3);
    assert_eq!(parse_index_key(&index_key(&tenant, no)), Some((tenant.clone(), no)));
    assert_eq!(parse_index_key(b"\x22acme"), None);
    assert_eq!(parse_change_place_key(&change_place_key(&tenant, 7)), Some(7));
    assert_eq!(parse_rules_key(&rules_key(&tenant)), Some(tenant));
}

#[test]
fn an_entry_says_which_document_it_is_of() {
    let (tenant, no) = (tenant(), IndexNo(1));
    let path = DocumentPath::parse("rooms/r1").unwrap();
    let document = document(Some("{\"status\":\"open\"}"));
    let view = DocumentView::new(&path, &document);
    let (key, value) = index_entry(&tenant, no, &definition("rooms"), &view);
    let from = index_entry_bound(&tenant, no, path.collection(), &[]);
    assert!(key.starts_with(&from));
    assert_eq!(parse_index_entry_id(&key, &value).as_ref(), Some(path.id()));
    assert_eq!(parse_index_entry_id(&key, &[]), None);
    assert_eq!(parse_index_entry_id(&key, &[200]), None);
    let bound = index_entry_bound(&tenant, no, path.collection(), &key[from.len()..]);
    assert_eq!(bound, key);
    assert_eq!(Document::decode(&document.encode()).as_ref(), Ok(&document));
}
