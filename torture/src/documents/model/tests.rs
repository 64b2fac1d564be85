//! What the model notices, and what it takes.

use serde_json::json;

use super::*;
use crate::documents::write::OpKind;

const TENANT: &str = "default";

fn fields(value: &Value) -> Fields {
    value.as_object().cloned().unwrap()
}

fn set(path: &str, data: &Value) -> Op {
    Op { path: path.to_owned(), kind: OpKind::Set(fields(data)), guard: None }
}

/// A transaction that sets two documents, answered or not.
fn model(answer: Option<Answer>) -> Model {
    let ops = vec![set("rooms/a", &json!({ "write": 7 })), set("rooms/b", &json!({ "write": 7 }))];
    let mark = Op::mark(1, 7, ops.len());
    let write = DocumentWrite::transaction(7, 0, "k".to_owned(), mark, ops);
    let mut model = Model::default();
    model.pending.insert(7, Sent { write, answer });
    model
}

fn change(seq: u64, path: &str, data: &Value) -> String {
    let (collection, id) = path.rsplit_once('/').unwrap();
    let mut after = data.clone();
    for (name, value) in [("version", 1), ("createdAt", 5_000), ("updatedAt", 5_000)] {
        after[name] = value.into();
    }
    (after["id"], after["collection"]) = (id.into(), collection.into());
    json!({ "seq": seq, "lsn": format!("5:{seq}"), "tenant": TENANT, "type": "create",
            "path": path, "before": null, "after": after, "ts": 5 })
    .to_string()
}

fn whole() -> Vec<String> {
    vec![
        change(1, "marks/c1", &json!({ "write": 7, "of": 2 })),
        change(2, "rooms/a", &json!({ "write": 7 })),
        change(3, "rooms/b", &json!({ "write": 7 })),
    ]
}

fn done(versions: [u64; 3]) -> Option<Answer> {
    let result = |version| OpResult { version, updated_at: Some(5_000) };
    Some(Answer::Done(versions.map(result).to_vec()))
}

#[test]
fn a_whole_transaction_is_found_once() {
    let mut known = model(done([1, 1, 1]));
    known.follow(TENANT, &whole()).unwrap();
    assert!(known.check_pending().unwrap().is_empty() && known.is_settled(7));
    let shown = |version| {
        let document = json!({ "id": "a", "collection": "rooms", "version": version,
                               "createdAt": 5_000, "updatedAt": 5_000, "write": 7 });
        [Shown { path: "rooms/a".to_owned(), document: fields(&document) }]
    };
    assert!(known.check_shown(&shown(1)).is_ok());
    assert!(known.check_shown(&shown(2)).is_err());
    let again: Vec<String> = whole()
        .iter()
        .zip(4..)
        .map(|(text, seq)| {
            let mut value: Value = serde_json::from_str(text).unwrap();
            (value["seq"], value["lsn"]) = (json!(seq), json!(format!("5:{seq}")));
            value.to_string()
        })
        .collect();
    assert!(known.follow(TENANT, &again).unwrap_err().contains("twice"));
}

#[test]
fn an_unanswered_transaction_is_whole_or_not_there() {
    let mut known = model(None);
    known.follow(TENANT, &[]).unwrap();
    assert_eq!(known.check_pending().unwrap().len(), 1);
    let mut known = model(None);
    known.follow(TENANT, &whole()).unwrap();
    assert_eq!(known.take_found().len(), 1);
}

#[test]
fn what_is_torn_lost_invented_or_out_of_order_is_noticed() {
    let check = |answer: Option<Answer>, changes: &[String], said: &str| {
        let mut known = model(answer);
        let found = known.follow(TENANT, changes).and_then(|()| known.check_pending().map(|_| ()));
        let found = found.unwrap_err();
        assert!(found.contains(said), "{found} is not about {said:?}");
    };
    let whole = whole();
    check(None, &whole[..2], "torn");
    check(done([1, 1, 1]), &[], "lost");
    check(done([1, 1, 2]), &whole, "was told");
    check(Some(Answer::Failed(412, "PRECONDITION_FAILED".to_owned())), &whole, "was refused");
    check(Some(Answer::Busy), &whole, "was refused");
    check(None, &[whole[1].replace("\"seq\":2", "\"seq\":1")], "of request 7");
    check(None, &[whole[0].clone(), whole[2].clone(), whole[1].clone()], "should be");
    check(None, &[whole[0].replace("\"lsn\":\"5:1\"", "\"lsn\":\"4:1\"")], "time");
    let other = whole[0].replace("\"write\":7", "\"write\":8").replace("\"of\":2", "\"of\":0");
    check(None, &[other], "not sent");
    let other = whole[2].replace("\"version\":1", "\"version\":2");
    check(None, &[whole[0].clone(), whole[1].clone(), other], "it leaves");
    let behind = whole[1].replace("\"lsn\":\"5:2\"", "\"lsn\":\"5:1\"");
    check(None, &[whole[0].clone(), behind, whole[2].clone()], "does not follow");
}
