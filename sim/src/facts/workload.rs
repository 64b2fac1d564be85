//! What clients ask for.

use reveille_schema::facts::decode_token;
use reveille_schema::keys;

use super::Facts;
use super::action::Action;
use super::audit::GARDEN_MARK;
use super::engine;
use super::model::{PEOPLE, SLUGS, TARGETS};

#[derive(Debug, Clone, Copy)]
enum Idea {
    Join,
    Leave,
    Garden,
    Token,
    Key,
    Say,
    TakeBack,
    Subscribe,
}

impl Facts {
    /// Everybody has a key and a token, and there are gardens.
    pub(super) fn begin(&mut self) {
        for slug in 0..SLUGS.len() {
            self.ask(Action::Open { slug });
        }
        for person in 0..PEOPLE {
            self.ask(Action::MakeKey { person, key: 0 });
            self.ask(Action::Issue { person });
        }
    }

    /// A client has an idea.
    pub(super) fn ask_for_something(&mut self) {
        let idea = self.base.random.weighted(&[
            (14, Idea::Join),
            (8, Idea::Leave),
            (2, Idea::Garden),
            (5, Idea::Token),
            (3, Idea::Key),
            (40, Idea::Say),
            (4, Idea::TakeBack),
            (26, Idea::Subscribe),
        ]);
        let (person, slug) = (self.base.random.index(PEOPLE), self.base.random.index(SLUGS.len()));
        match idea {
            Idea::Join => self.ask(Action::Join { person, slug }),
            Idea::Leave => self.ask(Action::Leave { person, slug }),
            Idea::Garden if self.base.random.one_in(2) => self.ask(Action::Open { slug }),
            Idea::Garden => self.ask(Action::Close { slug }),
            Idea::Token if self.base.random.one_in(2) => self.ask(Action::Issue { person }),
            Idea::Token => self.revoke_token(),
            Idea::Key => self.change_key(person),
            Idea::Say => self.say(true),
            Idea::TakeBack => self.say(false),
            Idea::Subscribe => self.subscribe(person),
        }
    }

    /// One of the tokens that there are durably.
    fn revoke_token(&mut self) {
        let tenant = engine::tenant();
        let (from, to) = keys::all_tokens();
        let read = |(index, (key, value)): (usize, (&bytes::Bytes, &bytes::Bytes))| {
            let (_, no) = keys::parse_token(key)?;
            decode_token(&tenant, no, value).ok().map(|_| (index, no))
        };
        let all: Vec<_> = self.raw.range(from..to).enumerate().filter_map(read).collect();
        if !all.is_empty() {
            let (index, no) = *self.base.random.pick(&all);
            self.ask(Action::RevokeToken { index, no });
        }
    }

    /// A person's key is revoked, and they get another.
    fn change_key(&mut self, person: usize) {
        let mine = self.durable.keys.iter().filter(|(of, _)| *of == person);
        let Some(key) = mine.map(|(_, key)| *key).max() else { return };
        self.ask(Action::RevokeKey { person, key });
        let key = usize::try_from(self.next_number()).expect("a small number");
        self.ask(Action::MakeKey { person, key });
    }

    fn say(&mut self, is_said: bool) {
        if self.decided.events.len() >= self.events_max {
            return;
        }
        let number = self.next_number();
        let random = &mut self.base.random;
        let slug = random.percent(60).then(|| random.index(SLUGS.len()));
        let (entity, relation) = (random.index(3), random.index(3));
        let word = if slug.is_some() { GARDEN_MARK } else { "mark" };
        let mark = is_said.then(|| format!("{word}-{number}-"));
        self.ask(Action::Say { entity, relation, slug, mark });
    }

    fn subscribe(&mut self, person: usize) {
        let mine = self.durable.keys.iter().filter(|(of, _)| *of == person);
        let Some(key) = mine.map(|(_, key)| *key).max() else { return };
        let name = format!("s{}", self.next_number());
        let target = self.base.random.index(TARGETS.len());
        let wakes = self.base.random.one_in(4);
        self.ask(Action::Subscribe { person, key, target, name, wakes });
    }
}
