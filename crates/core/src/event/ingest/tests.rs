//! The forms in which events are sent, and every reason to refuse them.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(text: &str) -> Result<Ingest, IngestError> {
    Ingest::parse(text.as_bytes())
}

fn types(text: &str) -> Vec<String> {
    parse(text).unwrap().events.iter().map(|event| event.kind.to_string()).collect()
}

#[test]
fn batches_arrays_and_lone_events_are_taken() {
    assert_eq!(types(r#"{"events":[{"type":"a"},{"type":"b"}]}"#), ["a", "b"]);
    assert_eq!(types(r#" [{"type":"a"}, {"type":"b"}] "#), ["a", "b"]);
    assert_eq!(types(r#" {"type":"a","x":1} "#), ["a"]);
    assert_eq!(types(r#"{"type":"a","events":[1],"batchId":7}"#), ["a"]);
    assert!(types(r#"{"events":[]}"#).is_empty());
    assert!(types("[]").is_empty());
}

#[test]
fn a_batch_may_have_an_id() {
    let batch_id = |text| parse(text).map(|ingest| ingest.batch_id);
    assert_eq!(batch_id(r#"{"events":[],"batchId":"b-1"}"#), Ok(Some("b-1".into())));
    assert_eq!(batch_id(r#"{"events":[],"batchId":null}"#), Ok(None));
    assert_eq!(batch_id(r#"{"events":[]}"#), Ok(None));
    for bad in [json!(""), json!(1), json!("a\n"), json!("x".repeat(257)), json!(["a"])] {
        let body = json!({"events": [], "batchId": bad}).to_string();
        assert_eq!(parse(&body), Err(BatchError::BatchId.into()), "{body}");
    }
}

#[test]
fn what_is_no_batch() {
    let check = |text: &str, error: IngestError| assert_eq!(parse(text), Err(error), "{text}");
    check("", IngestError::InvalidJson);
    check("{", IngestError::InvalidJson);
    check("{} {}", IngestError::InvalidJson);
    check(&"[".repeat(1_000_000), IngestError::InvalidJson);
    check("1", BatchError::Form.into());
    check("null", BatchError::Form.into());
    check("\"a\"", BatchError::Form.into());
    check("{}", BatchError::Form.into());
    check(r#"{"events":{}}"#, BatchError::EventsNotArray.into());
    check(r#"{"events":null}"#, BatchError::EventsNotArray.into());
    check(r#"{"events":[],"events":[]}"#, BatchError::Repeated.into());
    assert_eq!(Ingest::parse(b"\"\xff\""), Err(IngestError::InvalidJson));
}

#[test]
fn a_batch_has_a_thousand_events_at_most() {
    let events = |count| format!("[{}]", vec![r#"{"type":"a"}"#; count].join(","));
    assert_eq!(parse(&events(1_000)).unwrap().events.len(), 1_000);
    assert_eq!(parse(&events(1_001)), Err(BatchError::TooManyEvents.into()));
    assert_eq!(
        parse(&format!(r#"{{"events":{}}}"#, events(1_001))),
        Err(BatchError::TooManyEvents.into())
    );
}

#[test]
fn the_first_ten_bad_events_are_named() {
    let error = parse(r#"[{"type":"a"},{"type":1},{"type":"b"},{}]"#).unwrap_err();
    assert_eq!(error.to_string(), "event 1: `type` is not a string");
    let IngestError::InvalidEvent { indices, .. } = error else { panic!("{error}") };
    assert_eq!(indices, [1, 3]);
    let error = parse(&format!("[{}]", vec!["{}"; 20].join(","))).unwrap_err();
    let IngestError::InvalidEvent { indices, .. } = error else { panic!("{error}") };
    assert_eq!(indices, Vec::from_iter(0..10));
    let twice = parse(r#"{"type":"a","type":"b"}"#).unwrap_err();
    assert_eq!(twice.to_string(), "event 0: the field `type` is there more than once");
}

#[test]
fn an_event_is_not_too_large() {
    let event = |bytes: usize| {
        let empty = r#"{"type":"a","x":""}"#.len();
        format!(r#"{{"type":"a","x":"{}"}}"#, "x".repeat(bytes - empty))
    };
    assert!(parse(&event(EVENT_BYTES_MAX)).is_ok());
    let large = event(EVENT_BYTES_MAX + 1);
    assert_eq!(parse(&large), Err(IngestError::EventTooLarge { index: 0 }));
    let body = format!(r#"{{"events":[{{}},{large}]}}"#);
    assert_eq!(parse(&body), Err(IngestError::EventTooLarge { index: 1 }));
}

proptest! {
    #[test]
    fn any_body_is_judged(body in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Ingest::parse(&body);
    }
}
