//! Queries give the same with indexes and without, page by page, and end where they must.

use proptest::prelude::*;
use reveille_core::document::order::Order;
use reveille_core::document::path::CollectionPath;
use reveille_core::document::query::{Query, QuerySpec};
use reveille_core::document::snapshot::DocumentView;
use reveille_kernel::limits::PAGE_BYTES_MAX;
use serde_json::json;

use super::*;
use crate::documents::query::{QueryAnswer, QueryPlan, QueryRun};
use crate::limits::QUERY_MS_MAX;
use crate::testing::TickingClock;

fn spec(collection: &str) -> QuerySpec {
    QuerySpec {
        collection: CollectionPath::parse(collection).unwrap(),
        filters: Vec::new(),
        order: Order::default(),
        limit: Some(3),
        start_after: None,
        show_deleted: false,
    }
}

fn query(spec: QuerySpec) -> Query {
    Query::new(spec, DocumentSettings::default().page_limits()).unwrap()
}

fn order(fields: &[&str]) -> Order {
    let field = |name: &&str| match name.strip_prefix('-') {
        Some(name) => SortField::new(name, Direction::Desc).unwrap(),
        None => SortField::new(name, Direction::Asc).unwrap(),
    };
    Order::new(fields.iter().map(field).collect()).unwrap()
}

impl World {
    fn run(&self, query: Query, scan_limit: u64, tick: u64) -> QueryRun {
        QueryRun {
            reader: self.bench.reader(),
            clock: Arc::new(TickingClock::new(tick)),
            tenant: self.tenant.clone(),
            query,
            rules: None,
            scan_limit,
            page_bytes: PAGE_BYTES_MAX,
        }
    }

    fn ask(&self, query: Query, scan_limit: u64) -> Result<QueryAnswer, DocumentRejection> {
        self.run(query, scan_limit, 0).answer().map_err(|error| match error {
            Error::Rejected(rejection) => rejection,
            other => panic!("{other}"),
        })
    }

    /// The ids of all pages, one after another.
    fn pages(&self, spec: &QuerySpec) -> Vec<String> {
        let (mut spec, mut ids) = (spec.clone(), Vec::new());
        loop {
            let answer = self.ask(query(spec.clone()), u64::MAX).unwrap();
            ids.extend(answer.page.documents.into_iter().map(|(id, _)| id));
            match answer.page.next {
                Some(next) => spec.start_after = Some(next.encode()),
                None => return ids,
            }
        }
    }

    /// The same by looking at everything.
    fn plainly(&self, spec: &QuerySpec) -> Vec<String> {
        let query = query(spec.clone());
        let mut found = Vec::new();
        for (key, value) in self.pairs(keys::documents(&self.tenant, &query.collection)) {
            let (_, path) = keys::parse_document(&key).unwrap();
            let document = <Document as reveille_schema::Record>::decode(&value).unwrap();
            let view = DocumentView::new(&path, &document);
            if query.matches(&view) {
                let mut key = Default::default();
                query.order.write_key(&view, &mut key);
                found.push((key, path.id().to_string()));
            }
        }
        found.sort();
        found.into_iter().map(|(_, id)| id).collect()
    }
}

fn filled(count: usize) -> World {
    let mut world = World::new();
    let ops = (0..count).map(|it| set(&format!("a/{it:04}"), json!({"n": it % 7, "s": "x"})));
    for ops in ops.collect::<Vec<_>>().chunks(100) {
        world.write(ops.to_vec(), None).unwrap();
    }
    world
}

#[test]
fn a_scan_ends_at_its_limit_and_says_which_index_is_missing() {
    let mut world = filled(50);
    let by_n = QuerySpec {
        filters: vec![Filter::new("n", "==", json!(3)).unwrap()],
        limit: Some(100),
        ..spec("a")
    };
    let answer = world.ask(query(by_n.clone()), 50).unwrap();
    assert_eq!(answer.cost.plan, QueryPlan::Scan);
    assert_eq!((answer.cost.documents_read, answer.page.documents.len()), (50, 7));
    let missing = world.ask(query(by_n.clone()), 49);
    let Err(DocumentRejection::MissingIndex(suggested)) = missing else { panic!("{missing:?}") };
    world.declare(vec![suggested.clone()]);
    assert!(world.ask(query(by_n.clone()), 49).is_err(), "it is not built yet");
    world.fire_all();
    let answer = world.ask(query(by_n), 49).unwrap();
    assert_eq!(answer.cost.plan, QueryPlan::Index(suggested));
    assert_eq!((answer.cost.documents_read, answer.cost.index_entries_read), (7, 7));
    assert_eq!(answer.page.documents.len(), 7);
    // No index helps here.
    let others =
        QuerySpec { filters: vec![Filter::new("n", "!=", json!(3)).unwrap()], ..spec("a") };
    let others = QuerySpec { limit: Some(100), ..others };
    let costly = DocumentRejection::QueryTooCostly { documents_read: 50 };
    assert_eq!(world.ask(query(others), 49), Err(costly));
    // A listing is none, however large the collection is.
    let listing = world.ask(query(spec("a")), 1).unwrap();
    assert_eq!(listing.page.documents.len(), 3);
}

#[test]
fn a_query_that_takes_too_long_ends_where_it_is() {
    let mut world = filled(50);
    let slow = |world: &World, spec: QuerySpec| world.run(query(spec), u64::MAX, QUERY_MS_MAX / 4);
    // The page is short, and the next one goes on from there.
    let rare =
        QuerySpec { filters: vec![Filter::new("s", "==", json!("y")).unwrap()], ..spec("a") };
    let answer = slow(&world, rare.clone()).answer().unwrap();
    assert!(answer.page.documents.is_empty() && answer.page.next.is_some());
    assert!(answer.cost.documents_read < 10);
    assert_eq!(world.pages(&rare), Vec::<String>::new());
    // Sorted in memory nothing is known before the end.
    let sorted = QuerySpec { order: order(&["n"]), ..rare.clone() };
    let error = slow(&world, sorted.clone()).answer().unwrap_err();
    assert!(matches!(error, Error::Rejected(DocumentRejection::QueryTooCostly { .. })));
    world.declare(vec![definition("a", &["n"])]);
    world.fire_all();
    assert!(slow(&world, sorted).answer().unwrap().page.next.is_some());
}

#[test]
fn a_page_is_bounded_in_bytes() {
    let mut world = World::new();
    for at in ["a/1", "a/2", "a/3", "a/4"] {
        world.write(vec![set(at, json!({"x": "x".repeat(400 << 10)}))], None).unwrap();
    }
    let answer = world.ask(query(QuerySpec { limit: Some(100), ..spec("a") }), 10).unwrap();
    assert_eq!(answer.page.documents.len(), 2);
    assert_eq!(world.pages(&QuerySpec { limit: Some(100), ..spec("a") }), ["1", "2", "3", "4"]);
}

fn value() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!(null),
        json!(1),
        json!(2),
        json!(2.5),
        json!("a"),
        json!("b"),
        json!([1]),
        json!(true),
    ])
}

fn filter() -> impl Strategy<Value = Filter> {
    let field = prop::sample::select(vec!["x", "y", "version", "id"]);
    let op = prop::sample::select(vec!["==", "!=", ">", ">=", "<", "<=", "in", "array-contains"]);
    (field, op, value(), value()).prop_map(|(field, op, one, two)| {
        let one = if field == "id" { json!("d3") } else { one };
        let value = if op == "in" { json!([one, two]) } else { one };
        Filter::new(field, op, value).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn pages_are_the_same_with_indexes_and_without(
        documents in prop::collection::vec((0..12_u8, value(), value(), any::<bool>()), 1..30),
        filters in prop::collection::vec(filter(), 0..3),
        fields in prop::sample::subsequence(vec!["x", "-y", "version", "-id"], 0..3),
        show_deleted in any::<bool>(),
        limit in 1..5_u64,
        indexes in prop::sample::subsequence(
            vec![&["x"][..], &["-x", "y"], &["y", "-x"], &["version", "x"], &["-y"]], 1..5),
    ) {
        let mut world = World::new();
        for (id, x, y, is_deleted) in documents {
            let at = format!("a/d{id}");
            let mut ops = vec![set(&at, json!({"x": x, "y": y}))];
            ops.extend(is_deleted.then(|| delete(&at)));
            world.write(ops, None).unwrap();
        }
        let order = order(&fields);
        let limit = Some(limit);
        let spec = QuerySpec { filters, order, limit, show_deleted, ..spec("a") };
        let expected = world.plainly(&spec);
        prop_assert_eq!(world.pages(&spec), expected.clone());
        world.declare(indexes.iter().map(|fields| definition("a", fields)).collect());
        world.fire_all();
        world.check_indexes();
        prop_assert_eq!(world.pages(&spec), expected);
    }
}
