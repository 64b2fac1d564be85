//! Who belongs where, whose token and key hold, and who is told what: a plain reading of the rules,
//! which shares nothing with the engine's.

use std::collections::{BTreeMap, BTreeSet};

use super::action::{Action, Refusal};

pub(super) const PEOPLE: usize = 3;
pub(super) const SLUGS: [&str; 2] = ["atlas", "hades"];
pub(super) const TARGETS: [&str; 5] =
    ["scope:team", "scope:global", "entity:e0", "scope:garden:atlas", "scope:garden:hades"];
/// The first target that is a garden.
const GARDEN_TARGETS: usize = 3;

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Model {
    /// Grows with everything that happens.
    step: usize,
    pub(super) keys: BTreeSet<(usize, usize)>,
    /// Who holds each, and whether it was not revoked.
    pub(super) tokens: Vec<(usize, bool)>,
    pub(super) gardens: Vec<GardenModel>,
    /// Subscriptions that were asked for and allowed: not each was new.
    pub(super) asked: BTreeMap<String, AskedSubscription>,
    pub(super) events: Vec<EventModel>,
    /// What holds of a relation.
    slots: BTreeMap<(usize, usize, Option<usize>), BTreeSet<String>>,
}

/// One incarnation of a garden.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GardenModel {
    slug: usize,
    pub(super) members: [bool; PEOPLE],
    ended: [Option<usize>; PEOPLE],
    is_open: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct AskedSubscription {
    pub(super) person: usize,
    pub(super) target: usize,
    pub(super) garden: Option<usize>,
    created: usize,
    token: usize,
    key: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct EventModel {
    entity: usize,
    pub(super) garden: Option<usize>,
    at: usize,
    /// What is in it; nothing for a contradiction.
    pub(super) mark: Option<String>,
}

/// What a look must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Deliver,
    Withhold,
    Cancel,
}

impl Model {
    pub(super) fn garden(&self, slug: usize) -> Option<usize> {
        self.gardens.iter().position(|it| it.slug == slug && it.is_open)
    }

    /// What an action does, and whether it is done.
    pub(super) fn apply(&mut self, action: &Action) -> Result<(), Refusal> {
        let mut after = self.clone();
        after.step += 1;
        if after.does(action) {
            *self = after;
            return Ok(());
        }
        Err(Refusal::Rejected)
    }

    fn does(&mut self, action: &Action) -> bool {
        match action {
            Action::Open { slug } => self.open(*slug),
            Action::Close { slug } => self.close(*slug),
            Action::Join { person, slug } => match self.garden(*slug) {
                Some(at) => !std::mem::replace(&mut self.gardens[at].members[*person], true),
                None => false,
            },
            Action::Leave { person, slug } => match self.garden(*slug) {
                Some(at) => self.leave(at, *person),
                None => false,
            },
            Action::Issue { person } => {
                self.tokens.push((*person, true));
                true
            }
            Action::RevokeToken { index, .. } => {
                std::mem::replace(&mut self.tokens[*index].1, false)
            }
            Action::MakeKey { person, key } => {
                self.keys.insert((*person, *key));
                true
            }
            Action::RevokeKey { person, key } => {
                self.keys.remove(&(*person, *key));
                true
            }
            Action::Say { entity, relation, slug, mark } => {
                self.say(*entity, *relation, *slug, mark.as_deref())
            }
            Action::Subscribe { person, key, target, name, .. } => {
                self.subscribe(*person, *key, *target, name)
            }
            Action::RecordOutcome(_) | Action::Drop(_) | Action::Append(_) | Action::Timer(_) => {
                true
            }
        }
    }

    fn open(&mut self, slug: usize) -> bool {
        if self.garden(slug).is_some() {
            return false;
        }
        let (members, ended) = ([false; PEOPLE], [None; PEOPLE]);
        self.gardens.push(GardenModel { slug, members, ended, is_open: true });
        true
    }

    fn close(&mut self, slug: usize) -> bool {
        let Some(at) = self.garden(slug) else { return false };
        self.gardens[at].is_open = false;
        for person in 0..PEOPLE {
            self.leave(at, person);
        }
        true
    }

    fn leave(&mut self, at: usize, person: usize) -> bool {
        let step = self.step;
        let garden = &mut self.gardens[at];
        let was = std::mem::replace(&mut garden.members[person], false);
        if was {
            garden.ended[person] = Some(step);
        }
        was
    }

    fn say(
        &mut self,
        entity: usize,
        relation: usize,
        slug: Option<usize>,
        mark: Option<&str>,
    ) -> bool {
        let garden = slug.and_then(|slug| self.garden(slug));
        if slug.is_some() && garden.is_none() {
            return false;
        }
        let slot = self.slots.entry((entity, relation, garden)).or_default();
        let at = self.step;
        let event =
            |mark: Option<&str>| EventModel { entity, garden, at, mark: mark.map(str::to_owned) };
        self.events.push(event(Some(mark.unwrap_or_default())));
        match mark {
            None => slot.clear(),
            Some(mark) => {
                let contradicts = slot.iter().any(|it| it != mark);
                slot.insert(mark.to_owned());
                self.events.extend(contradicts.then(|| event(None)));
            }
        }
        true
    }

    fn subscribe(&mut self, person: usize, key: usize, target: usize, name: &str) -> bool {
        let token = self.tokens.iter().rposition(|(of, ok)| *of == person && *ok);
        let slug = target.checked_sub(GARDEN_TARGETS);
        let garden = slug.and_then(|slug| self.garden(slug));
        let may_read = slug.is_none() || garden.is_some_and(|it| self.gardens[it].members[person]);
        let Some(token) = token.filter(|_| may_read && self.keys.contains(&(person, key))) else {
            return false;
        };
        let created = self.step;
        let asked = AskedSubscription { person, target, garden, created, token, key };
        self.asked.insert(name.to_owned(), asked);
        true
    }

    /// What is to be done about something in a garden, or in none.
    pub(super) fn expected(&self, of: &AskedSubscription, garden: Option<usize>) -> Expected {
        if !self.tokens[of.token].1 || !self.keys.contains(&(of.person, of.key)) {
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

    /// Whether it would be cancelled for something now.
    pub(super) fn may_be_cancelled(&self, of: &AskedSubscription) -> bool {
        let gardens = (0..self.gardens.len()).map(Some).chain([None]);
        gardens.into_iter().any(|garden| self.expected(of, garden) == Expected::Cancel)
    }

    /// Whether an event is one that a subscription asks for.
    pub(super) fn is_for(&self, of: &AskedSubscription, event: &EventModel) -> bool {
        event.at > of.created
            && match of.target {
                0 | 1 => true,
                2 => event.entity == 0,
                _ => of.garden.is_some() && of.garden == event.garden,
            }
    }
}
