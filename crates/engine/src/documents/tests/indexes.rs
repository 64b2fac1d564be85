//! Indexes are declared, built in slices while documents are written, kept, and removed.

use reveille_core::document::index::IndexError;
use reveille_core::document::limits::{INDEXES_MAX, INDEXES_PER_COLLECTION_MAX};
use reveille_core::document::snapshot::DocumentView;
use reveille_schema::Record;
use reveille_schema::documents::{DocumentTimer, IndexNo, IndexState};
use serde_json::json;

use super::*;
use crate::documents::declare::IndexProgress;
use crate::limits::BUILD_SLICE;

impl World {
    /// What the indexes that are ready should have, computed anew, is what they have.
    pub(super) fn check_indexes(&self) {
        let mut expected = BTreeMap::new();
        let documents = self.pairs(keys::tenant_documents(&self.tenant));
        let reader = self.bench.reader();
        let (mut found, mut is_building) = (BTreeMap::new(), false);
        for (no, index) in query::indexes(&reader, &self.tenant).unwrap() {
            if index.state == IndexState::Removing {
                continue;
            }
            found.extend(self.pairs(keys::all_index_entries(&self.tenant, no)));
            is_building |= index.state != IndexState::Ready;
            for (key, value) in &documents {
                let (_, path) = keys::parse_document(key).unwrap();
                let document = Document::decode(value).unwrap();
                if index.definition.collection.matches(path.collection()) {
                    let view = DocumentView::new(&path, &document);
                    let entry = keys::index_entry(&self.tenant, no, &index.definition, &view);
                    expected.insert(entry.0, entry.1);
                }
            }
        }
        if is_building {
            assert!(found.iter().all(|(key, value)| expected.get(key) == Some(value)));
        } else {
            assert_eq!(found, expected);
        }
    }

    fn fill(&mut self, count: usize) {
        let ops = (0..count).map(|it| set(&format!("a/{it}"), json!({"n": it})));
        self.write(ops.collect(), None).unwrap();
    }

    fn states(&self) -> Vec<IndexState> {
        let indexes = query::indexes(&self.bench.reader(), &self.tenant).unwrap();
        indexes.into_iter().map(|(_, index)| index.state).collect()
    }
}

#[test]
fn an_index_is_built_of_what_was_there_while_others_write() {
    let mut world = World::new();
    let at = |number: usize| format!("rooms/r{number:03}/messages/m");
    for number in 0..3 * BUILD_SLICE {
        let room = format!("rooms/r{number:03}");
        let ops = [&room, &at(number)].map(|at| set(at, json!({"n": number})));
        world.write(ops.to_vec(), None).unwrap();
    }
    let views = world.declare(vec![definition("rooms/*/messages", &["-n"])]);
    assert_eq!(views[0].progress, IndexProgress::Building { documents: 0 });
    let mut slices = 0;
    while let Some(timer) = world.bench.timers().into_iter().next() {
        world.bench.fire(timer).answer();
        slices += 1;
        // Before the place that was reached, behind it, and where nothing was.
        world.write(vec![set(&at(slices), json!({"n": "new"}))], None).unwrap();
        world.write(vec![delete(&at(3 * BUILD_SLICE - slices))], None).ok();
        world.write(vec![set(&format!("rooms/x{slices}/messages/m"), json!({}))], None).unwrap();
        world.check_indexes();
        if world.states() == [IndexState::Ready] {
            break;
        }
    }
    assert!(slices > 3, "one slice is not enough");
    assert_eq!(world.states(), [IndexState::Ready]);
    world.check_indexes();
}

#[test]
fn a_slice_that_somebody_was_faster_with_changes_nothing() {
    let mut world = World::new();
    world.fill(BUILD_SLICE + 10);
    world.declare(vec![definition("a", &["n"])]);
    let timer = world.bench.timers().remove(0);
    let shared = &world.bench.shared;
    let late = crate::documents::timers::FireDocumentTimer::new(shared, timer.clone()).unwrap();
    world.bench.fire(timer.clone()).answer();
    assert!(world.bench.when(&late).writes.is_empty());
    world.fire_all();
    assert_eq!(world.states(), [IndexState::Ready]);
    world.check_indexes();
}

#[test]
fn what_is_not_wanted_any_more_is_removed_with_all_its_entries() {
    let mut world = World::new();
    for number in 0..20 {
        let ops = (0..40).map(|it| set(&format!("a/{number}-{it}"), json!({"n": it})));
        world.write(ops.collect(), None).unwrap();
    }
    let (one, two) = (definition("a", &["n"]), definition("a", &["-n"]));
    world.declare(vec![one.clone(), two.clone()]);
    world.fire_all();
    world.check_indexes();
    let views = world.declare(vec![two.clone()]);
    assert_eq!(views, [IndexView { definition: two, progress: IndexProgress::Ready }]);
    assert_eq!(world.states(), [IndexState::Removing, IndexState::Ready]);
    // Declared anew it is another one, whatever is left of the first.
    world.declare(vec![one]);
    world.write(vec![set("a/new", json!({"n": 7}))], None).unwrap();
    world.fire_all();
    assert_eq!(world.states(), [IndexState::Ready]);
    world.check_indexes();
    assert!(world.pairs(keys::all_index_entries(&world.tenant, IndexNo(1))).is_empty());
    assert!(world.pairs(keys::all_index_entries(&world.tenant, IndexNo(2))).is_empty());
    assert!(world.bench.timers().is_empty());
}

#[test]
fn an_index_that_is_removed_while_it_is_built_leaves_nothing() {
    let mut world = World::new();
    world.fill(BUILD_SLICE + 10);
    world.declare(vec![definition("a", &["n"])]);
    let timer = world.bench.timers().remove(0);
    assert_eq!(
        DocumentTimer::decode(timer.name()),
        Some(DocumentTimer::BuildIndex(world.tenant.clone(), IndexNo(1)))
    );
    world.bench.fire(timer).answer();
    world.declare(Vec::new());
    world.fire_all();
    assert!(world.pairs(keys::all_indexes()).is_empty() && world.bench.timers().is_empty());
    assert!(world.pairs(keys::all_index_entries(&world.tenant, IndexNo(1))).is_empty());
}

#[test]
fn a_tenant_has_so_many_indexes_and_no_more() {
    let mut world = World::new();
    let command = |definitions| SetDocumentIndexes::new(Tenant::default_tenant(), definitions);
    let one = definition("a", &["n"]);
    assert_eq!(command(vec![one.clone(), one]).unwrap_err(), IndexError::Exists);
    let many = (0..=INDEXES_PER_COLLECTION_MAX).map(|it| definition("a", &[&format!("n{it}")]));
    assert_eq!(command(many.collect()).unwrap_err(), IndexError::TooManyOfCollection);
    let all = |name: &str| -> Vec<_> {
        (0..INDEXES_MAX).map(|it| definition(&format!("{name}{it}"), &["n"])).collect()
    };
    world.declare(all("a"));
    assert_eq!(world.declare(all("a")).len(), INDEXES_MAX);
    world.declare(all("b"));
    match world.bench.when(&command(all("c")).unwrap()).outcome {
        Err(Error::Rejected(rejection)) => assert_eq!(rejection, DocumentRejection::TooManyIndexes),
        other => panic!("it was done: {other:?}"),
    }
    world.fire_all();
    assert_eq!(world.declare(all("c")).len(), INDEXES_MAX);
}

#[test]
fn memory_knows_the_same_after_a_start() {
    let mut world = World::new();
    world.write(vec![set("a/1", json!({"n": 1}))], None).unwrap();
    world.declare(vec![definition("a", &["n"])]);
    world.bench.reopen();
    world.write(vec![set("a/2", json!({"n": 2}))], None).unwrap();
    world.fire_all();
    world.bench.reopen();
    world.write(vec![set("a/1", json!({"n": 3})), set("a/3", json!({}))], None).unwrap();
    world.check_indexes();
    assert_eq!(world.states(), [IndexState::Ready]);
}
