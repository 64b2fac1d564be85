//! Random histories: people come and go, tokens and keys are revoked, facts are said and taken back,
//! attempts are looked at, answered, lost in restarts and made again. At every look, what may leave is
//! what a plain reading of the rules says; nothing of a garden leaves to whoever does not belong to it
//! at that look, and whoever is never cancelled is told everything that they might read.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::deliveries::delivery::is_leased;
use crate::facts::replay::{Replay, ReplayRun};

const PEOPLE: usize = 4;
const SLUGS: [&str; 2] = ["atlas", "hades"];
const TARGETS: [&str; 5] =
    ["scope:team", "scope:global", "entity:e0", "scope:garden:atlas", "scope:garden:hades"];

/// Something that happens, and what it is about.
type Op = (u8, usize, usize, usize);

/// One incarnation of a garden.
struct GardenModel {
    slug: usize,
    members: [bool; PEOPLE],
    /// When they were members last.
    ended: [Option<usize>; PEOPLE],
    is_open: bool,
}

struct SubscriptionModel {
    hook: Arc<Hook>,
    person: usize,
    target: usize,
    garden: Option<usize>,
    created: usize,
    token: usize,
    /// The generation of its owner's key.
    key: usize,
    is_over: bool,
}

struct EventModel {
    no: EventNo,
    entity: usize,
    garden: Option<usize>,
    /// When it came.
    at: usize,
}

/// What a plain reading of the rules says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Deliver,
    Withhold,
    Cancel,
}

/// An attempt that was looked at, and not written down.
struct Flight {
    attempt: DeliveryAttempt,
    seen: DeliveryReadiness,
}

struct History {
    world: World,
    admin: Person,
    people: Vec<Person>,
    generations: [usize; PEOPLE],
    valid_keys: BTreeSet<(usize, usize)>,
    tokens: Vec<(TokenNo, usize, bool)>,
    gardens: Vec<GardenModel>,
    subscriptions: Vec<SubscriptionModel>,
    events: Vec<EventModel>,
    /// What was said in which incarnation of a garden.
    marks: Vec<(String, usize)>,
    flights: Vec<Flight>,
    delivered: BTreeSet<(HookId, EventNo)>,
    withheld: BTreeSet<(HookId, EventNo)>,
    failures: BTreeMap<(HookId, EventNo), usize>,
    step: usize,
}

impl History {
    fn new() -> History {
        let mut world = World::with(Settings { fan_out: 2, ..Settings::default() });
        let admin = world.person("ada", &[], Role::Admin);
        let mut history = History {
            world,
            admin,
            people: Vec::new(),
            generations: [0; PEOPLE],
            valid_keys: BTreeSet::new(),
            tokens: Vec::new(),
            gardens: Vec::new(),
            subscriptions: Vec::new(),
            events: Vec::new(),
            marks: Vec::new(),
            flights: Vec::new(),
            delivered: BTreeSet::new(),
            withheld: BTreeSet::new(),
            failures: BTreeMap::new(),
            step: 0,
        };
        for person in 0..PEOPLE {
            let key = history.key(person);
            history.people.push(key);
            history.issue(person);
        }
        (0..SLUGS.len()).for_each(|slug| history.open(slug));
        history
    }

    /// A person's next key.
    fn key(&mut self, person: usize) -> Person {
        self.generations[person] += 1;
        let generation = self.generations[person];
        self.valid_keys.insert((person, generation));
        let access = Access {
            tenant: Some(self.world.tenant.clone()),
            roles: BTreeSet::from([Role::User]),
            entity_uri: Some(format!("user:p{person}").into()),
            permissions: BTreeSet::new(),
            scopes: BTreeSet::from(["*".into()]),
            description: None,
        };
        let id = format!("key_{person}_{generation}");
        let hash = KeyHash::of(&id).unwrap();
        let key = Arc::new(Key { id: id.into(), created_at: Millis(1), access });
        self.world.bench.when(&ChangeKey { hash, key: Some(key.clone()) }).answer();
        Person { principal: Principal::of_key(&key.id, &key.access), key, hash }
    }

    fn issue(&mut self, person: usize) {
        let (admin, to) = (self.admin.clone(), self.people[person].clone());
        let no = self.world.token(&admin, &to, "*");
        self.tokens.push((no, person, true));
    }

    fn open(&mut self, slug: usize) {
        if self.garden(slug).is_none() {
            let admin = self.admin.clone();
            self.world.garden(&admin, SLUGS[slug]);
            let (members, ended) = ([false; PEOPLE], [None; PEOPLE]);
            self.gardens.push(GardenModel { slug, members, ended, is_open: true });
        }
    }

    /// The incarnation of a garden that there is now.
    fn garden(&self, slug: usize) -> Option<usize> {
        self.gardens.iter().position(|it| it.slug == slug && it.is_open)
    }

    fn apply(&mut self, (kind, a, b, c): Op) {
        self.step += 1;
        let (person, slug) = (a % PEOPLE, b % SLUGS.len());
        let admin = self.admin.clone();
        match kind {
            0 | 1 => self.join(person, slug),
            2 => self.leave(person, slug),
            3 if c == 0 => self.close(slug),
            3 => self.open(slug),
            4 => {
                let held = self.tokens.iter().rposition(|(_, of, ok)| *of == person && *ok);
                if let Some(at) = held {
                    self.world.revoke_token(&admin, self.tokens[at].0);
                    self.tokens[at].2 = false;
                }
            }
            5 => self.issue(person),
            6 => {
                let old = self.people[person].clone();
                self.world.revoke_key(&old);
                self.valid_keys.remove(&(person, self.generations[person]));
                self.people[person] = self.key(person);
            }
            7..=10 => self.say(b, c, (a > 0).then_some(slug)),
            11 => self.take_back(b, c, (a > 0).then_some(slug)),
            12 | 13 => self.subscribe(person, (b + 2 * c) % TARGETS.len()),
            14 | 15 => self.look(a + 4 * b),
            16 | 17 => self.finish(a + 4 * b, c > 0),
            18 => {
                let pause = [100, 2_000, 30_000, 400_000][c];
                self.world.bench.now = Millis(self.world.bench.now.0 + pause);
                self.world.fire_all();
            }
            19 if c == 0 => {
                // The process ends: whatever was on its way is made again.
                self.world.bench.reopen();
                self.world.due.clear();
                self.flights.clear();
            }
            _ => self.replay(a + 4 * b),
        }
    }

    fn join(&mut self, person: usize, slug: usize) {
        let (admin, who) = (self.admin.clone(), self.people[person].clone());
        let done = self.world.grant(&admin, &who, SLUGS[slug], GardenRole::Reader);
        let garden = self.garden(slug);
        let may = garden.is_some_and(|at| !self.gardens[at].members[person]);
        assert_eq!(done, may);
        if let Some(at) = garden {
            self.gardens[at].members[person] = true;
        }
    }

    fn leave(&mut self, person: usize, slug: usize) {
        let (admin, who) = (self.admin.clone(), self.people[person].clone());
        let done = self.world.remove(&admin, &who, SLUGS[slug]);
        let garden = self.garden(slug).filter(|at| self.gardens[*at].members[person]);
        assert_eq!(done, garden.is_some());
        if let Some(at) = garden {
            self.gardens[at].members[person] = false;
            self.gardens[at].ended[person] = Some(self.step);
        }
    }

    fn close(&mut self, slug: usize) {
        let Some(at) = self.garden(slug) else { return };
        let admin = self.admin.clone();
        self.world.delete_garden(&admin, SLUGS[slug]);
        let garden = &mut self.gardens[at];
        garden.is_open = false;
        for person in 0..PEOPLE {
            if std::mem::take(&mut garden.members[person]) {
                garden.ended[person] = Some(self.step);
            }
        }
    }

    fn say(&mut self, entity: usize, relation: usize, slug: Option<usize>) {
        let mark = format!("mark-{}-", self.step);
        let statement =
            said(&format!("e{entity}"), &format!("r{relation}"), &mark, slug.map(|it| SLUGS[it]));
        self.write(entity, slug, statement, Some(mark));
    }

    fn take_back(&mut self, entity: usize, relation: usize, slug: Option<usize>) {
        let statement =
            said(&format!("e{entity}"), &format!("r{relation}"), "", slug.map(|it| SLUGS[it]));
        self.write(entity, slug, retracted(statement), None);
    }

    fn write(
        &mut self,
        entity: usize,
        slug: Option<usize>,
        statement: Statement,
        mark: Option<String>,
    ) {
        let garden = slug.and_then(|slug| self.garden(slug));
        let (admin, before) = (self.admin.clone(), self.world.events().len());
        let written = self.world.try_assert(&admin, statement);
        assert_eq!(written.is_ok(), slug.is_none() || garden.is_some());
        if let (Some(garden), Some(mark)) = (garden, mark) {
            self.marks.push((mark, garden));
        }
        let new = self.world.events().split_off(before);
        let is_contradiction = written.is_ok_and(|fact| fact.contradicted);
        assert_eq!(
            new.len(),
            if slug.is_some() && garden.is_none() { 0 } else { 1 + usize::from(is_contradiction) }
        );
        let at = self.step;
        self.events.extend(new.into_iter().map(|no| EventModel { no, entity, garden, at }));
    }

    fn subscribe(&mut self, person: usize, target: usize) {
        let by = self.people[person].clone();
        let command = self.world.subscription(&by, wanted(TARGETS[target]));
        let outcome = self.world.bench.when(&command).outcome;
        let token = self.tokens.iter().rposition(|(_, of, ok)| *of == person && *ok);
        let slug = target.checked_sub(3);
        let garden = slug.and_then(|slug| self.garden(slug));
        let may_read = slug.is_none() || garden.is_some_and(|it| self.gardens[it].members[person]);
        let Ok(Subscribed { hook, is_new }) = outcome else {
            assert!(token.is_none() || !may_read, "{person} may subscribe to {target}");
            return;
        };
        let (Some(token), true) = (token, may_read) else {
            panic!("{person} may not subscribe to {target}");
        };
        // One that is as good as cancelled has made room for another.
        let alike =
            |it: &SubscriptionModel| !it.is_over && (it.person, it.target) == (person, target);
        let known = self.subscriptions.iter().position(alike);
        let stands = known.filter(|at| {
            let it = &self.subscriptions[*at];
            self.expected(it, it.garden) != Expected::Cancel
        });
        assert_eq!(is_new, stands.is_none());
        if is_new {
            if let Some(at) = known {
                self.subscriptions[at].is_over = true;
            }
            // All of somebody's tokens are for the same: the one that ends last is taken.
            let (created, key) = (self.step, self.generations[person]);
            self.subscriptions.push(SubscriptionModel {
                hook,
                person,
                target,
                garden,
                created,
                token,
                key,
                is_over: false,
            });
        }
    }

    /// What a plain reading of the rules says of something in a garden, or in none.
    fn expected(&self, of: &SubscriptionModel, garden: Option<usize>) -> Expected {
        if !self.tokens[of.token].2 || !self.valid_keys.contains(&(of.person, of.key)) {
            return Expected::Cancel;
        }
        let Some(garden) = garden.map(|at| &self.gardens[at]) else { return Expected::Deliver };
        if garden.members[of.person] {
            return Expected::Deliver;
        }
        match garden.ended[of.person] {
            Some(ended) if ended > of.created => Expected::Cancel,
            _ => Expected::Withhold,
        }
    }

    fn is_for(&self, of: &SubscriptionModel, event: &EventModel) -> bool {
        event.at > of.created
            && match of.target {
                0 | 1 => true,
                2 => event.entity == 0,
                _ => of.garden.is_some() && of.garden == event.garden,
            }
    }

    fn subscription(&self, hook: HookId) -> usize {
        self.subscriptions.iter().position(|it| it.hook.id == hook).unwrap()
    }

    fn event(&self, no: EventNo) -> &EventModel {
        self.events.iter().find(|it| it.no == no).unwrap()
    }

    /// Nothing of a garden is in what leaves to whoever does not belong to it now.
    fn check_bytes(&self, person: usize, bytes: &[u8]) {
        let text = std::str::from_utf8(bytes).unwrap();
        for (mark, garden) in &self.marks {
            let belongs = self.gardens[*garden].members[person];
            assert!(belongs || !text.contains(mark.as_str()), "{mark} leaves to {person}: {text}");
        }
    }

    fn look(&mut self, which: usize) {
        if self.world.due.is_empty() {
            return;
        }
        let attempt = self.world.due.remove(which % self.world.due.len());
        let at = self.subscription(attempt.id.hook);
        let of = &self.subscriptions[at];
        let Some(seen) = self.world.look(&attempt) else {
            assert!(of.is_over, "a subscription that nobody ended is gone");
            return;
        };
        assert!(!of.is_over, "a subscription that ended is still there");
        let event = self.event(attempt.id.no.event);
        assert!(self.is_for(of, event), "somebody is told what is not for them");
        let expected = self.expected(of, event.garden);
        match (&seen, expected) {
            (DeliveryReadiness::Send(event), Expected::Deliver) => {
                self.check_bytes(of.person, &event.payload);
            }
            (DeliveryReadiness::Dropped { ends_hook: false, .. }, Expected::Withhold)
            | (DeliveryReadiness::Dropped { ends_hook: true, .. }, Expected::Cancel) => {}
            // It was made already, under the same number.
            (DeliveryReadiness::Nothing, _) => return,
            _ => panic!("{seen:?} is not {expected:?}"),
        }
        self.flights.push(Flight { attempt, seen });
    }

    fn finish(&mut self, which: usize, accepts: bool) {
        if self.flights.is_empty() {
            return;
        }
        let Flight { attempt, seen } = self.flights.remove(which % self.flights.len());
        let place = (attempt.id.hook, attempt.id.no.event);
        let at = self.subscription(place.0);
        match seen {
            DeliveryReadiness::Send(_) => {
                let failures = self.failures.entry(place).or_default();
                let accepts = accepts || *failures >= 4;
                *failures += usize::from(!accepts);
                self.world.answered(&attempt, accepts);
                if accepts {
                    self.delivered.insert(place);
                }
            }
            DeliveryReadiness::Dropped { why, ends_hook } => {
                let leased = self.is_leased(&attempt);
                let (id, attempt) = (attempt.id, attempt.attempt);
                let drop = DropDelivery { id, attempt, why, ends_hook };
                self.world.bench.when(&drop).answer();
                if leased && ends_hook {
                    self.subscriptions[at].is_over = true;
                    let hook = self.subscriptions[at].hook.clone();
                    assert!(self.world.cancelled(&hook).is_some());
                } else if leased {
                    self.withheld.insert(place);
                }
            }
            DeliveryReadiness::Held | DeliveryReadiness::Nothing => unreachable!("not kept"),
        }
    }

    fn is_leased(&self, attempt: &DeliveryAttempt) -> bool {
        let value = self.world.bench.reader().get(&keys::delivery(attempt.id)).unwrap();
        let delivery = value.map(|value| record::decode_delivery(&value).unwrap().delivery);
        let hook = self.world.hook(attempt.id.hook);
        let leased = delivery.is_some_and(|it| is_leased(&it, attempt.attempt));
        hook.is_some() && leased
    }

    /// A replay shows what was recorded and may be read now, or cancels.
    fn replay(&mut self, which: usize) {
        if self.subscriptions.is_empty() {
            return;
        }
        let at = which % self.subscriptions.len();
        let of = &self.subscriptions[at];
        let Some(hook) = self.world.hook(of.hook.id) else { return };
        let run = ReplayRun {
            reader: self.world.bench.reader(),
            hook: hook.clone(),
            after: None,
            limit: 500,
            window_s: u64::MAX / 1_000,
            now: self.world.bench.now,
        };
        let (from, to) = keys::deliveries(hook.id);
        let reader = self.world.bench.reader();
        let recorded: BTreeSet<EventNo> = Scan::new(&reader, from, to)
            .map(|pair| keys::parse_delivery(&pair.unwrap().0).unwrap().no.event)
            .collect();
        let rulings: Vec<(EventNo, Expected)> =
            recorded.into_iter().map(|no| (no, self.expected(of, self.event(no).garden))).collect();
        let is_revoked = self.expected(of, of.garden) == Expected::Cancel
            || rulings.iter().any(|(_, it)| *it == Expected::Cancel);
        match run.read().unwrap() {
            Replay::Page(page) => {
                assert!(!is_revoked, "a replay goes on although it may not");
                let ids = |bytes: &Bytes| {
                    let event: Value = serde_json::from_slice(bytes).unwrap();
                    event["event_id"].as_str().unwrap().to_owned()
                };
                let shown: Vec<String> = page.events.iter().map(ids).collect();
                let may = rulings.iter().filter(|(_, it)| *it == Expected::Deliver);
                let id = |no: EventNo| reveille_core::fact::subscription::event_id(hook.id, no);
                assert_eq!(shown, may.map(|(no, _)| id(*no)).collect::<Vec<_>>());
                page.events.iter().for_each(|it| self.check_bytes(of.person, it));
            }
            Replay::Revoked(why) => {
                assert!(is_revoked, "{why:?}");
                let cancel = super::super::subscription::CancelSubscription { hook: hook.id };
                self.world.bench.when(&cancel).answer();
                self.subscriptions[at].is_over = true;
            }
        }
    }

    /// Everything that can still happen by itself happens, and endpoints accept everything.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.world.fire_all();
            while !self.world.due.is_empty() {
                self.look(0);
            }
            while !self.flights.is_empty() {
                self.finish(0, true);
            }
            let next = self.world.bench.timers().first().map(|it| it.at());
            let month = Millis(self.world.bench.now.0 + 86_400_000);
            match next.filter(|at| *at < month) {
                Some(at) => self.world.bench.now = self.world.bench.now.max(at),
                None => return,
            }
        }
        panic!("it never comes to rest");
    }

    /// Whoever was never cancelled was told everything, but for what they were not to know.
    fn check_nothing_is_missing(&self) {
        for of in self.subscriptions.iter().filter(|it| !it.is_over) {
            for event in self.events.iter().filter(|event| self.is_for(of, event)) {
                let place = (of.hook.id, event.no);
                let is_settled = self.delivered.contains(&place) || self.withheld.contains(&place);
                assert!(is_settled, "{place:?} was never told");
            }
        }
        let live = self.subscriptions.iter().filter(|it| !it.is_over).count();
        let hooks = self.world.bench.shared.lock().index.of::<HookIndex>().len();
        assert_eq!(hooks, live);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nothing_leaves_to_whoever_may_not_read_it_and_nobody_else_misses_anything(
        ops in proptest::collection::vec((0..22_u8, 0..4_usize, 0..4_usize, 0..4_usize), 1..160)
    ) {
        let mut history = History::new();
        for op in ops {
            history.apply(op);
        }
        history.settle();
        history.check_nothing_is_missing();
    }
}
