//! Pages of facts: whoever asks sees what they may read, all of it, each once.

use super::*;
use crate::deliveries::trim::{TrimEvents, TrimPlan};
use crate::facts::error::FactError;
use crate::facts::page::{FactFilter, FactPage, PageRun};

impl World {
    fn page(
        &self,
        who: &Person,
        filter: &FactFilter,
        limit: usize,
        after: Option<Bytes>,
    ) -> Result<FactPage<Bytes>, FactError> {
        let index = |slug: &GardenSlug| {
            let core = self.bench.shared.lock();
            core.index.of::<crate::facts::index::GardenIndex>().named(&self.tenant, slug)
        };
        let run = PageRun {
            reader: self.bench.reader(),
            tenant: self.tenant.clone(),
            principal: who.principal.clone(),
            filter: filter.clone(),
            garden: filter.garden.as_ref().and_then(index),
            limit,
            after,
            wall: self.bench.now,
        };
        run.read()
    }

    /// All pages, one after another.
    fn all(&self, who: &Person, filter: &FactFilter, limit: usize) -> Vec<String> {
        let (mut values, mut cursor) = (Vec::new(), None);
        for _ in 0..1_000 {
            let page = self.page(who, filter, limit, cursor).unwrap();
            assert!(page.facts.len() <= limit);
            values.extend(page.facts.iter().map(|it| it.said.value.to_text()));
            cursor = page.next;
            if cursor.is_none() {
                return values;
            }
        }
        panic!("there is always another page");
    }
}

fn facts() -> (World, Person, Person) {
    let (mut world, admin, bob) = team();
    for number in 0..30 {
        let garden = (number % 3 == 0).then_some("atlas");
        let about = format!("e{}", number % 2);
        let mut statement = said(&about, &format!("r{}", number % 5), &number.to_string(), garden);
        if number % 7 == 1 && garden.is_none() {
            statement.scope = Scope::Public;
        }
        world.assert(&admin, statement);
    }
    (world, admin, bob)
}

#[test]
fn every_page_size_shows_the_same_and_nobody_sees_what_is_not_theirs() {
    let (world, admin, bob) = facts();
    let outside = |number: &u32| !number.is_multiple_of(3);
    let public = |number: &u32| outside(number) && number % 7 == 1;
    let mine = |filter: &dyn Fn(&u32) -> bool| -> BTreeSet<String> {
        (0..30).filter(filter).map(|it: u32| it.to_string()).collect()
    };
    let all = FactFilter::default();
    for limit in [1, 2, 7, 500] {
        let seen = world.all(&bob, &all, limit);
        assert_eq!(seen.len(), seen.iter().collect::<BTreeSet<_>>().len(), "each once");
        assert_eq!(
            seen.into_iter().collect::<BTreeSet<_>>(),
            mine(&|it| outside(it) && !public(it))
        );
        let seen: BTreeSet<String> = world.all(&admin, &all, limit).into_iter().collect();
        assert_eq!(seen, mine(&|_| true));
        for filter in [
            FactFilter { entity: Some(entity("e1")), ..all.clone() },
            FactFilter { entity: Some(entity("e1")), relation: Some("r3".into()), ..all.clone() },
            FactFilter { garden: Some(slug("atlas")), ..all.clone() },
            FactFilter { garden: Some(slug("atlas")), relation: Some("r3".into()), ..all.clone() },
            FactFilter { scope: Some(Scope::Public), ..all.clone() },
        ] {
            let fits = |number: &u32| {
                filter.entity.as_ref().is_none_or(|it| it.as_str() == format!("e{}", number % 2))
                    && filter.relation.as_ref().is_none_or(|it| **it == *format!("r{}", number % 5))
                    && (filter.garden.is_none() || number.is_multiple_of(3))
                    && (filter.scope.is_none() || public(number))
            };
            let seen: BTreeSet<String> = world.all(&admin, &filter, limit).into_iter().collect();
            assert_eq!(seen, mine(&fits), "{filter:?}");
            if filter.garden.is_some() {
                let denied = world.page(&bob, &filter, limit, None);
                assert!(matches!(denied, Err(Error::Rejected(FactRejection::NotMember))));
            } else {
                let seen: BTreeSet<String> = world.all(&bob, &filter, limit).into_iter().collect();
                assert_eq!(seen, mine(&|it| fits(it) && outside(it) && !public(it)), "{filter:?}");
            }
        }
    }
}

#[test]
fn a_cursor_opens_nothing() {
    let (mut world, admin, bob) = facts();
    let in_garden = FactFilter { garden: Some(slug("atlas")), ..FactFilter::default() };
    let theirs = world.page(&admin, &in_garden, 2, None).unwrap().next.unwrap();
    let all = FactFilter { entity: Some(entity("e0")), ..FactFilter::default() };
    let page = world.page(&bob, &all, 500, Some(theirs)).unwrap();
    assert!(page.facts.iter().all(|fact| fact.garden.is_none()));
    // Whoever leaves sees nothing of it in the next page.
    world.grant(&admin, &bob, "atlas", GardenRole::Reader);
    let first = world.page(&bob, &in_garden, 2, None).unwrap();
    assert_eq!(first.facts.len(), 2);
    world.remove(&admin, &bob, "atlas");
    let next = world.page(&bob, &in_garden, 2, first.next);
    assert!(matches!(next, Err(Error::Rejected(FactRejection::NotMember))));
}

#[test]
fn what_holds_is_what_was_said_last_of_each_value_and_not_taken_back() {
    let (mut world, admin, _) = team();
    for value in ["tea", "coffee", "tea"] {
        world.assert(&admin, said("a", "likes", value, None));
    }
    let live = FactFilter { entity: Some(entity("a")), live: true, ..FactFilter::default() };
    assert_eq!(world.all(&admin, &live, 10), ["coffee", "tea"]);
    world.assert(&admin, retracted(said("a", "likes", "", None)));
    assert!(world.all(&admin, &live, 10).is_empty());
    let all = FactFilter { live: false, ..live };
    assert_eq!(world.all(&admin, &all, 10).len(), 4);
}

#[test]
fn what_is_forgotten_are_events_and_copies_and_facts_stay() {
    let (mut world, admin, bob) = team();
    world.token(&admin, &bob, "*");
    world.subscribe(&bob, "scope:team");
    for value in ["tea", "coffee"] {
        world.assert(&admin, said("a", "likes", value, None));
        world.assert(&admin, said("a", "likes", value, Some("atlas")));
    }
    world.deliver_all();
    assert_eq!((world.events().len(), world.copies().len()), (6, 3));
    world.bench.now = Millis(world.bench.now.0 + 10_000);
    world.assert(&admin, said("b", "likes", "water", None));
    world.deliver_all();
    let (reader, cutoff) = (world.bench.reader(), Millis(world.bench.now.0 - 1));
    let plan = TrimPlan::make(&reader, FACE, &world.tenant, cutoff).unwrap().unwrap();
    let command = TrimEvents { face: FACE, tenant: world.tenant.clone(), plan };
    assert_eq!(world.bench.when(&command).answer().forgotten, 6);
    assert_eq!(world.events().len(), 1);
    assert_eq!(world.copies().len(), 1);
    assert_eq!(world.all(&admin, &FactFilter::default(), 10).len(), 5);
}
