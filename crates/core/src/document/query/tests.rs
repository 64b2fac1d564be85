//! Pages of queries, against a list that is filtered, sorted and cut.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::cursor::{Cursor, CursorError};
use super::page::{Page, PageCollector, Sorted, Wanted};
use super::*;
use crate::document::arbitrary;
use crate::document::order::{Direction, SortField};
use crate::document::snapshot::{Data, Document};
use crate::time::Millis;

fn spec() -> QuerySpec {
    QuerySpec {
        collection: CollectionPath::parse("rooms").unwrap(),
        filters: Vec::new(),
        order: Order::default(),
        limit: None,
        start_after: None,
        show_deleted: false,
    }
}

fn query(spec: QuerySpec) -> Query {
    Query::new(spec, PageLimits::default()).unwrap()
}

fn by(field: &str, direction: Direction) -> Order {
    Order::new(vec![SortField::new(field, direction).unwrap()]).unwrap()
}

fn document(data: Value) -> Document {
    let data = Data::new(data.as_object().unwrap().clone()).unwrap();
    let data = Some(data.into());
    Document { version: 1, created_at: Millis(0), updated_at: Millis(0), data }
}

fn ids(page: &Page) -> Vec<&str> {
    page.documents.iter().map(|(id, _)| id.as_str()).collect()
}

#[test]
fn a_query_has_its_limits() {
    let limit = |limit| Query::new(QuerySpec { limit, ..spec() }, PageLimits::default());
    assert_eq!(limit(None).unwrap().limit, QUERY_LIMIT);
    assert_eq!(limit(Some(0)).unwrap().limit, QUERY_LIMIT);
    assert_eq!(limit(Some(1_000)).unwrap().limit, 1_000);
    assert_eq!(limit(Some(1_001)), Err(QueryError::LimitTooHigh(1_000)));
    assert_eq!(limit(Some(u64::MAX)), Err(QueryError::LimitTooHigh(1_000)));
    let filters = vec![Filter::version_is(1); 33];
    let many = Query::new(QuerySpec { filters, ..spec() }, PageLimits::default());
    assert_eq!(many, Err(QueryError::Filter(FilterError::TooMany)));
}

#[test]
fn several_filters_on_one_field_all_count() {
    let filters = vec![
        Filter::new("n", ">=", json!(2)).unwrap(),
        Filter::new("n", "<", json!(4)).unwrap(),
        Filter::new("n", "!=", json!(3)).unwrap(),
    ];
    let query = query(QuerySpec { filters, ..spec() });
    let matches = |n: u64| {
        let document = document(json!({ "n": n }));
        query.matches(&DocumentView { collection: "rooms", id: "r", document: &document })
    };
    assert_eq!((0..6).filter(|n| matches(*n)).collect::<Vec<_>>(), [2]);
}

#[test]
fn tombstones_are_shown_to_who_asks_for_them() {
    let tombstone = Document { data: None, ..document(json!({})) };
    let view = DocumentView { collection: "rooms", id: "r", document: &tombstone };
    assert!(!query(spec()).matches(&view));
    assert!(query(QuerySpec { show_deleted: true, ..spec() }).matches(&view));
}

#[test]
fn a_cursor_is_for_one_query() {
    let order = by("n", Direction::Desc);
    let asked = query(QuerySpec { order: order.clone(), ..spec() });
    let mut key = SortKey::default();
    let at = document(json!({"n": 5}));
    let view = DocumentView { collection: "rooms", id: "r1", document: &at };
    asked.order.write_key(&view, &mut key);
    let text = Cursor { query: asked.fingerprint(), key: key.clone() }.encode();
    let parse = |spec: QuerySpec, text: &str| {
        let spec = QuerySpec { start_after: Some(text.to_owned()), ..spec };
        Query::new(spec, PageLimits::default()).map(|query| query.start_after)
    };
    let same = || QuerySpec { order: order.clone(), ..spec() };
    assert_eq!(parse(same(), &text), Ok(Some(key.clone())));
    // How long the next page is, everybody may decide anew.
    assert_eq!(parse(QuerySpec { limit: Some(7), ..same() }, &text), Ok(Some(key)));
    let filter = || Filter::new("n", ">", json!(1)).unwrap();
    for other in [
        QuerySpec { filters: vec![filter()], ..same() },
        QuerySpec { order: by("n", Direction::Asc), ..spec() },
        QuerySpec { order: by("m", Direction::Desc), ..spec() },
        QuerySpec { show_deleted: true, ..same() },
        QuerySpec { collection: CollectionPath::parse("halls").unwrap(), ..same() },
    ] {
        assert_eq!(parse(other, &text), Err(QueryError::Cursor(CursorError::OtherQuery)));
    }
    let mut bad: Vec<String> = (0..text.len()).map(|at| text[..at].to_owned()).collect();
    bad.extend((0..text.len()).map(|at| {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).unwrap()
    }));
    bad.extend(["r1".into(), "a+b=".into(), "A".repeat(9_000)]);
    for bad in bad {
        assert_eq!(parse(same(), &bad), Err(QueryError::Cursor(CursorError::Malformed)), "{bad}");
    }
}

#[test]
fn a_page_ends_by_its_bytes_and_skips_nobody() {
    let query = query(spec());
    let mut collector = PageCollector::new(&query, Sorted::No, 4_000);
    // `b` does not fit with `a`; that `c` would makes no difference.
    let sizes = [("d", 10), ("a", 2_000), ("b", 3_000), ("c", 10)];
    for (id, size) in sizes {
        assert_eq!(collector.offer(id, document(json!({"t": "x".repeat(size)}))), Wanted::More);
    }
    let page = collector.finish();
    assert_eq!(ids(&page), ["a"]);
    assert!(page.next.is_some());
    let mut alone = PageCollector::new(&query, Sorted::Exactly, 100);
    assert_eq!(alone.offer("a", document(json!({"t": "x".repeat(500)}))), Wanted::More);
    assert_eq!(alone.offer("b", document(json!({}))), Wanted::Enough);
    assert_eq!(ids(&alone.finish()), ["a"]);
}

fn page_after(spec: &QuerySpec, after: &Option<Cursor>) -> Query {
    let start_after = after.as_ref().map(Cursor::encode);
    query(QuerySpec { start_after, ..spec.clone() })
}

proptest! {
    /// Pages one after another are the whole answer, however the documents come, and also when
    /// reading stops in the middle.
    #[test]
    fn pages_are_the_answer_in_pieces(
        documents in prop::collection::vec(arbitrary::document(), 0..24),
        filters in prop::collection::vec(arbitrary::filter(), 0..2),
        order in arbitrary::order(),
        limit in 1u64..6,
        show_deleted in any::<bool>(),
        sorted in prop::sample::select(vec![Sorted::No, Sorted::ExceptTies, Sorted::Exactly]),
        stop_after in prop::option::of(3usize..8),
        bytes_max in prop::sample::select(vec![1_000, 1_000_000]),
    ) {
        let spec = QuerySpec { filters, order, limit: Some(limit), show_deleted, ..spec() };
        let whole = query(spec.clone());
        let mut all: Vec<(SortKey, String, Document)> = documents
            .into_iter()
            .enumerate()
            .map(|(at, document)| {
                let id = format!("d{at:02}");
                let mut key = SortKey::default();
                let view = DocumentView { collection: "rooms", id: &id, document: &document };
                whole.order.write_key(&view, &mut key);
                (key, id, document)
            })
            .collect();
        let view = |id: &str, document: &Document| {
            whole.matches(&DocumentView { collection: "rooms", id, document })
        };
        all.sort_by(|left, right| left.0.cmp(&right.0));
        let expected: Vec<String> =
            all.iter().filter(|(_, id, it)| view(id, it)).map(|(_, id, _)| id.clone()).collect();
        match sorted {
            Sorted::Exactly => {}
            Sorted::ExceptTies => all.sort_by(|left, right| {
                left.0.fields().cmp(right.0.fields()).then_with(|| right.1.cmp(&left.1))
            }),
            Sorted::No => all.sort_by(|left, right| right.1.cmp(&left.1)),
        }
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..200 {
            let query = page_after(&spec, &after);
            let mut collector = PageCollector::new(&query, sorted, bytes_max);
            let mut read = 0;
            let mut stopped = None;
            for (key, id, document) in &all {
                // As an index would, reading begins behind the last page.
                let is_before = query.start_after.as_ref().is_some_and(|after| key <= after);
                if sorted == Sorted::Exactly && is_before {
                    continue;
                }
                read += 1;
                if view(id, document)
                    && collector.offer(id, document.clone()) == Wanted::Enough
                {
                    break;
                }
                if stop_after.is_some_and(|max| read >= max) && sorted == Sorted::Exactly {
                    stopped = Some((id, document));
                    break;
                }
            }
            let page = match stopped {
                Some((id, document)) => collector.finish_at(id, document).unwrap(),
                None => collector.finish(),
            };
            prop_assert!(page.documents.len() <= usize::try_from(limit).unwrap());
            prop_assert!(bytes_max > 1_000 || page.documents.len() <= 3);
            found.extend(ids(&page).into_iter().map(str::to_owned));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        prop_assert!(after.is_none());
        prop_assert_eq!(found, expected);
    }

    /// Also among ties, what was certain when reading stopped is the beginning of the answer.
    #[test]
    fn a_page_that_stops_among_ties_is_certain(
        documents in prop::collection::vec((0u64..4, 0u32..1_000), 1..20),
        limit in 1u64..8,
        stop in 0usize..20,
    ) {
        let order = by("n", Direction::Asc);
        let spec = QuerySpec { order, limit: Some(limit), ..spec() };
        let query = query(spec);
        let mut offered: Vec<(u64, u32, String)> = documents
            .iter()
            .enumerate()
            .map(|(at, (n, random))| (*n, *random, format!("d{at:02}")))
            .collect();
        offered.sort();
        let mut expected = offered.clone();
        expected.sort_by(|left, right| (left.0, &left.2).cmp(&(right.0, &right.2)));
        let stop = stop.min(offered.len() - 1);
        let mut collector = PageCollector::new(&query, Sorted::ExceptTies, 1 << 20);
        for (n, _, id) in &offered[..=stop] {
            if collector.offer(id, document(json!({ "n": n }))) == Wanted::Enough {
                return Ok(());
            }
        }
        let (n, _, id) = &offered[stop];
        let page = collector.finish_at(id, &document(json!({ "n": n }))).unwrap();
        let certain = ids(&page);
        let expected: Vec<&str> = expected.iter().map(|(_, _, id)| id.as_str()).collect();
        prop_assert_eq!(&certain[..], &expected[..certain.len()]);
        // Nobody is skipped: whoever comes next is behind the cursor.
        let mut key = SortKey::default();
        let next_id = expected[certain.len()];
        let next = offered.iter().find(|it| it.2 == next_id).unwrap();
        let next = document(json!({ "n": next.0 }));
        let view = DocumentView { collection: "rooms", id: next_id, document: &next };
        query.order.write_key(&view, &mut key);
        prop_assert!(key > page.next.unwrap().key);
    }
}
