//! Indexes and plans, against a list that is filtered and sorted.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::plan::{Plan, Source, plan};
use super::*;
use crate::document::arbitrary;
use crate::document::filter::Filter;
use crate::document::order::{Direction, Order};
use crate::document::query::page::{Page, PageCollector, Sorted, Wanted};
use crate::document::query::{PageLimits, Query, QuerySpec};
use crate::document::snapshot::{Data, Document};
use crate::document::value::ValueRef;
use crate::time::Millis;

fn index(collection: &str, fields: &[(&str, Direction)]) -> Result<IndexDefinition, IndexError> {
    let field = |(name, direction): &(&str, Direction)| {
        Ok(SortField { field: parse_index_field(name)?, direction: *direction })
    };
    let fields = fields.iter().map(field).collect::<Result<_, IndexError>>()?;
    IndexDefinition::new(CollectionPattern::parse(collection)?, fields)
}

use Direction::{Asc, Desc};

#[test]
fn a_pattern_is_for_collections_of_its_length() {
    let matches = |pattern: &str, path: &str| {
        let pattern = CollectionPattern::parse(pattern).unwrap();
        pattern.matches(&CollectionPath::parse(path).unwrap())
    };
    assert!(matches("rooms", "rooms"));
    assert!(matches("*", "rooms"));
    assert!(matches("rooms/*/messages", "rooms/r1/messages"));
    assert!(matches("*/*/*", "rooms/r1/messages"));
    assert!(!matches("rooms/*/messages", "rooms/r1/members"));
    assert!(!matches("rooms", "rooms/r1/messages"));
    assert!(!matches("*/*/*", "rooms"));
    let overlaps = |one: &str, other: &str| {
        let parse = |text| CollectionPattern::parse(text).unwrap();
        parse(one).overlaps(&parse(other)) && parse(other).overlaps(&parse(one))
    };
    assert!(overlaps("rooms/*/messages", "*/r1/messages"));
    assert!(!overlaps("rooms/*/messages", "rooms/*/members"));
    assert!(!overlaps("rooms", "rooms/*/members"));
}

#[test]
fn what_is_no_index_says_why() {
    let a = || Field::parse("a").unwrap();
    assert_eq!(index("rooms", &[]), Err(IndexError::NoFields));
    assert_eq!(index("rooms", &[("a", Asc), ("a", Desc)]), Err(IndexError::Repeated(a())));
    assert_eq!(index("rooms", &[("a", Asc), ("data.a", Asc)]), Err(IndexError::Repeated(a())));
    assert_eq!(index("rooms", &[("a", Asc); 9]), Err(IndexError::TooManyFields));
    assert_eq!(index("rooms", &[("id", Asc)]), Err(IndexError::NotIndexed(Field::Id)));
    assert!(matches!(index("rooms", &[("data.version", Asc)]), Err(IndexError::Field(_))));
    assert!(matches!(index("rooms/r1", &[("a", Asc)]), Err(IndexError::Collection(_))));
    assert!(matches!(index("sys", &[("a", Asc)]), Err(IndexError::Collection(_))));
    assert_eq!(index("rooms/r*/m", &[("a", Asc)]), Err(IndexError::PartialStar));
    assert_eq!(index("rooms/**/m", &[("a", Asc)]), Err(IndexError::PartialStar));
    assert!(index("rooms", &[("version", Asc), ("data.data.a", Desc)]).is_ok());
    let nested = parse_index_field("data.data.a").unwrap();
    assert_eq!(nested, Field::parse("data.a").unwrap());
    assert_eq!(index_field_name(&nested), "data.data.a");
    assert_eq!(index_field_name(&Field::UpdatedAt), "updatedAt");
}

#[test]
fn a_collection_has_few_indexes() {
    let named =
        |collection: &str, at: usize| index(collection, &[(&format!("f{at}"), Asc)]).unwrap();
    let ten: Vec<_> = (0..10).map(|at| named("rooms/*/messages", at)).collect();
    assert_eq!(ten[3].check_beside(&ten), Err(IndexError::Exists));
    assert_eq!(named("*/r1/*", 10).check_beside(&ten), Err(IndexError::TooManyOfCollection));
    assert_eq!(named("rooms/*/members", 10).check_beside(&ten), Ok(()));
    assert_eq!(named("*/r1/*", 9).check_beside(&ten[1..]), Ok(()));
    let many: Vec<_> = (0..200).map(|at| named(&format!("c{at}"), 0)).collect();
    assert_eq!(named("d", 0).check_beside(&many), Err(IndexError::TooMany));
    let deep = |segments: usize| named(&vec!["a"; segments].join("/"), 0);
    assert_eq!(deep(31).check_beside(&[]), Ok(()));
    assert_eq!(deep(33).check_beside(&[]), Err(IndexError::TooManySegments));
}

fn asked(filters: &[(&str, &str, Value)], order: &[(&str, Direction)]) -> Query {
    let filter =
        |(field, op, value): &(&str, &str, Value)| Filter::new(field, op, value.clone()).unwrap();
    let by = |(field, direction): &(&str, Direction)| SortField::new(field, *direction).unwrap();
    let spec = QuerySpec {
        collection: CollectionPath::parse("rooms/r1/messages").unwrap(),
        filters: filters.iter().map(filter).collect(),
        order: Order::new(order.iter().map(by).collect()).unwrap(),
        limit: None,
        start_after: None,
        show_deleted: false,
    };
    Query::new(spec, PageLimits::default()).unwrap()
}

const MESSAGES: &str = "rooms/*/messages";

fn check(query: &Query, indexes: &[&[(&str, Direction)]], expected: (Source, Sorted, bool)) {
    let indexes: Vec<_> = indexes.iter().map(|fields| index(MESSAGES, fields).unwrap()).collect();
    let Plan { source, sorted, is_backwards, .. } = plan(query, &indexes);
    assert_eq!((source, sorted, is_backwards), expected);
}

#[test]
fn the_best_index_is_chosen() {
    let status = |order: &[(&str, Direction)]| asked(&[("status", "==", json!("open"))], order);
    let exactly = |at| (Source::Index(at), Sorted::Exactly, false);
    check(&status(&[]), &[&[("n", Asc)], &[("status", Asc)]], exactly(1));
    check(&status(&[]), &[], (Source::Collection, Sorted::Exactly, false));
    let newest = status(&[("createdAt", Desc)]);
    let up: &[_] = &[("status", Asc), ("createdAt", Asc)];
    let down: &[_] = &[("status", Asc), ("createdAt", Desc)];
    check(&newest, &[&[("status", Asc)], up, down], exactly(2));
    // Backwards, ties come the wrong way round.
    check(&newest, &[&[("status", Asc)], up], (Source::Index(1), Sorted::ExceptTies, true));
    let backwards = status(&[("createdAt", Desc), ("id", Desc)]);
    check(&backwards, &[up, down], (Source::Index(0), Sorted::Exactly, true));
    check(&status(&[("status", Desc)]), &[&[("status", Asc)]], exactly(0));
    // Others than those that match are between them: only moments are in order.
    let behind: &[_] = &[("createdAt", Desc), ("status", Asc)];
    check(&newest, &[behind], (Source::Index(0), Sorted::ExceptTies, false));
    let several = asked(&[("n", "in", json!([3, 1]))], &[("n", Asc)]);
    check(&several, &[&[("n", Asc)]], exactly(0));
    let others = asked(&[("n", "in", json!([3, 1]))], &[("m", Asc)]);
    check(&others, &[&[("n", Asc), ("m", Asc)]], (Source::Index(0), Sorted::No, false));
    let ids = asked(&[("id", "in", json!(["m2", "m1"])), ("status", "==", json!(1))], &[]);
    check(&ids, &[&[("status", Asc)]], (Source::Collection, Sorted::Exactly, false));
    let elsewhere = index("halls", &[("status", Asc)]).unwrap();
    assert_eq!(plan(&status(&[]), &[elsewhere]).source, Source::Collection);
}

#[test]
fn what_reads_a_whole_collection_is_known() {
    let is_scan = |filters: &[_], order: &[_]| {
        let query = asked(filters, order);
        plan(&query, &[]).is_scan(&query)
    };
    assert!(!is_scan(&[], &[]));
    assert!(!is_scan(&[], &[("id", Desc)]));
    assert!(!is_scan(&[("id", ">", json!("m1"))], &[]));
    assert!(is_scan(&[], &[("n", Asc)]));
    assert!(is_scan(&[("n", "==", json!(1))], &[]));
}

#[test]
fn a_suggestion_names_the_collection_below_any_document() {
    let query = asked(&[("status", "==", json!(1)), ("n", ">", json!(2))], &[("at", Desc)]);
    let expected = index(MESSAGES, &[("data.status", Asc), ("data.at", Desc)]).unwrap();
    assert_eq!(suggest(&query), Some(expected));
    let range = asked(&[("n", ">", json!(2)), ("t", "!=", json!(2))], &[]);
    assert_eq!(suggest(&range), Some(index(MESSAGES, &[("n", Asc)]).unwrap()));
    assert_eq!(suggest(&asked(&[("t", "array-contains", json!(2))], &[])), None);
    assert_eq!(suggest(&asked(&[], &[])), None);
    // What is suggested can be declared.
    let below = |segments: usize| {
        let collection = CollectionPath::parse(&vec!["a"; segments].join("/")).unwrap();
        suggest(&Query { collection, ..range.clone() })
    };
    assert!(below(31).is_some_and(|index| index.check_beside(&[]).is_ok()));
    assert_eq!(below(33), None);
}

#[test]
fn a_range_that_begins_or_ends_in_what_is_cut_off_misses_nobody() {
    let text = |end: &str| json!("x".repeat(600) + end);
    let documents = ["a", "b", "c"].map(|end| {
        let data = json!({ "t": text(end) }).as_object().unwrap().clone();
        let data = Data::new(data).unwrap();
        Document {
            version: 1,
            created_at: Millis(0),
            updated_at: Millis(0),
            data: Some(data.into()),
        }
    });
    for direction in [Asc, Desc] {
        let indexes = [index(MESSAGES, &[("t", direction)]).unwrap()];
        let world = World::new(documents.to_vec(), &indexes);
        let table = [
            ("==", vec![1]),
            (">", vec![2]),
            (">=", vec![1, 2]),
            ("<", vec![0]),
            ("<=", vec![0, 1]),
        ];
        for (op, expected) in table {
            let query = asked(&[("t", op, text("b"))], &[]);
            let plan = plan(&query, &indexes);
            assert_eq!(plan.source, Source::Index(0));
            let mut found = world.read(&plan);
            found.retain(|at| world.matches(&query, *at));
            assert_eq!(found, expected, "{op} {direction:?}");
        }
    }
}

/// Documents, and keys of the collection and of each index.
struct World {
    documents: Vec<Document>,
    keys: Vec<BTreeMap<Vec<u8>, usize>>,
}

fn id(at: usize) -> String {
    format!("d{at:02}")
}

impl World {
    fn new(documents: Vec<Document>, indexes: &[IndexDefinition]) -> World {
        let mut keys = vec![BTreeMap::new(); indexes.len() + 1];
        for (at, document) in documents.iter().enumerate() {
            let id = id(at);
            let view = DocumentView { collection: "rooms/r1/messages", id: &id, document };
            keys[0].insert(id.clone().into_bytes(), at);
            for (index, keys) in indexes.iter().zip(&mut keys[1..]) {
                let mut entry = Vec::new();
                index.write_entry(&view, &mut entry);
                keys.insert(entry, at);
            }
        }
        World { documents, keys }
    }

    /// What is read, in order.
    fn read(&self, plan: &Plan) -> Vec<usize> {
        let keys = match plan.source {
            Source::Collection => &self.keys[0],
            Source::Index(at) => &self.keys[at + 1],
        };
        let mut found = Vec::new();
        for range in &plan.ranges {
            assert!(!range.is_empty());
            let start = Bound::Included(range.start.to_vec());
            let end = range.end.as_ref().map(|end| end.to_vec());
            let end = end.map_or(Bound::Unbounded, Bound::Excluded);
            let mut part: Vec<_> = keys.range((start, end)).map(|(_, at)| *at).collect();
            if plan.is_backwards {
                part.reverse();
            }
            found.extend(part);
        }
        found
    }

    fn matches(&self, query: &Query, at: usize) -> bool {
        let id = id(at);
        let document = &self.documents[at];
        query.matches(&DocumentView { collection: query.collection.as_str(), id: &id, document })
    }

    /// Collects a page, and stops after so many documents. `None` if nothing is certain then.
    fn page(&self, query: &Query, plan: &Plan, stop_after: Option<usize>) -> Option<Page> {
        let mut collector = PageCollector::new(query, plan.sorted, 1 << 20);
        for (read, at) in (1..).zip(self.read(plan)) {
            let (id, document) = (id(at), self.documents[at].clone());
            let is_wanted = self.matches(query, at);
            if is_wanted && collector.offer(&id, document.clone()) == Wanted::Enough {
                break;
            }
            if stop_after == Some(read) {
                return collector.finish_at(&id, &document);
            }
        }
        Some(collector.finish())
    }

    /// By values, and not by their bytes. Texts beyond what an order looks at are equal.
    fn answer(&self, query: &Query) -> Vec<usize> {
        let mut answer: Vec<usize> =
            (0..self.documents.len()).filter(|at| self.matches(query, *at)).collect();
        answer.sort_by(|left, right| {
            let by_fields = query.order.fields().iter().map(|by| {
                let order = self.compare(&by.field, *left, *right);
                if by.direction == Desc { order.reverse() } else { order }
            });
            let by_id = || match query.order.id() {
                Asc => left.cmp(right),
                Desc => right.cmp(left),
            };
            by_fields.fold(Ordering::Equal, Ordering::then).then_with(by_id)
        });
        answer
    }

    fn compare(&self, field: &Field, left: usize, right: usize) -> Ordering {
        let (left_id, right_id) = (id(left), id(right));
        let value = |id, at: usize| {
            let document = &self.documents[at];
            match field.value(&DocumentView { collection: "c", id, document }) {
                Some(ValueRef::String(text)) => {
                    Some(ValueRef::String(text.get(..550).unwrap_or(text)))
                }
                other => other,
            }
        };
        value(&left_id, left).cmp(&value(&right_id, right))
    }
}

fn query(
    filters: Vec<Filter>,
    order: Order,
    limit: u64,
    show_deleted: bool,
    after: Option<String>,
) -> Query {
    let spec = QuerySpec {
        collection: CollectionPath::parse("rooms/r1/messages").unwrap(),
        filters,
        order,
        limit: Some(limit),
        start_after: after,
        show_deleted,
    };
    Query::new(spec, PageLimits::default()).unwrap()
}

fn indexes() -> impl Strategy<Value = Vec<IndexDefinition>> {
    let fields = arbitrary::sort_fields().prop_filter_map("an index", |mut fields| {
        fields.retain(|(name, _)| *name != "id");
        index(MESSAGES, &fields).ok()
    });
    prop::collection::vec(fields, 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever is planned, the pages one after another are the answer.
    #[test]
    fn every_plan_finds_the_answer(
        documents in prop::collection::vec(arbitrary::document(), 0..24),
        filters in prop::collection::vec(arbitrary::filter(), 0..4),
        order in arbitrary::order(),
        indexes in indexes(),
        limit in 1u64..6,
        show_deleted in any::<bool>(),
        stop_after in prop::option::of(1usize..9),
    ) {
        let world = World::new(documents, &indexes);
        let ask = |after| query(filters.clone(), order.clone(), limit, show_deleted, after);
        let expected = world.answer(&ask(None));
        let (mut found, mut after) = (Vec::new(), None);
        for _ in 0..100 {
            let query = ask(after);
            let plan = plan(&query, &indexes);
            let read = world.read(&plan);
            prop_assert_eq!(
                read.len(),
                { let mut once = read.clone(); once.sort(); once.dedup(); once.len() },
                "nobody is read twice"
            );
            let page = world.page(&query, &plan, stop_after);
            // Where nothing is certain yet, reading goes on to the end.
            let page = page.or_else(|| world.page(&query, &plan, None)).unwrap();
            found.extend(page.documents.into_iter().map(|(id, _)| id));
            after = page.next.map(|next| next.encode());
            if after.is_none() {
                break;
            }
        }
        let expected: Vec<String> = expected.into_iter().map(id).collect();
        prop_assert_eq!(found, expected);
    }

    /// What is suggested is chosen once it is there, whatever else is, unless that is as good.
    #[test]
    fn a_suggestion_is_chosen(
        filters in prop::collection::vec(arbitrary::filter(), 0..4),
        order in arbitrary::order(),
        mut indexes in indexes(),
    ) {
        let query = query(filters, order, 5, false, None);
        if let Some(suggested) = suggest(&query) {
            prop_assert_eq!(plan(&query, std::slice::from_ref(&suggested)).source, Source::Index(0));
            indexes.insert(0, suggested);
            let chosen = plan(&query, &indexes);
            prop_assert!(!chosen.is_scan(&query));
        }
    }

    /// An index never makes anybody read more than the collection has.
    #[test]
    fn who_is_told_to_declare_an_index_is_not_told_so_again(
        filters in prop::collection::vec(arbitrary::filter(), 1..4),
        order in arbitrary::order(),
    ) {
        let query = query(filters, order, 5, false, None);
        let suggested: Vec<_> = suggest(&query).into_iter().collect();
        let plan = plan(&query, &suggested);
        prop_assert_eq!(plan.is_scan(&query) || plan.source == Source::Collection,
                        suggested.is_empty());
    }
}
