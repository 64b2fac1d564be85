//! What clients ask for.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{EventHookSpec, HookSpec, HookUpdate};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::event::{EventPattern, EventType, Ulid};
use reveille_core::stream::create::Create;
use reveille_core::{ContentType, Millis, Tenant};
use reveille_engine::Engine;
use reveille_engine::command::Command;
use reveille_engine::command::hook::{HookChange, Since};
use reveille_engine::command::ingest::{Ingest, NewEvent};
use reveille_engine::command::trim::Look;

use super::errand::{Errand, Owner};
use super::model::unfit;
use super::world::Deliveries;
use crate::server::Server;
use crate::world::{Checked, violated};

const KINDS: [&str; 4] = ["order.created", "order.paid", "user.created", "ping"];
const PATTERNS: [&str; 5] = ["**", "order.*", "*.created", "ping", "order.paid"];
const WORKERS: [&str; 4] = ["w1", "w2", "w3", "w4"];
const METHODS: [&str; 2] = ["receive", "again"];

#[derive(Debug, Clone, Copy)]
enum Idea {
    Ingest,
    Repeat,
    Hook,
    HookUpdate,
    Activate,
    End,
    Retry,
    CleanUp,
    Trim,
}

impl Deliveries {
    /// Some hooks are there from the beginning.
    pub(crate) fn prepare(&mut self) {
        for tenant in self.tenants.clone() {
            let content_type = ContentType::parse("text/plain");
            let request = Create { content_type, ..Create::default() };
            let command = Command::Create { tenant, path: unfit(), request, anchor: None };
            self.send(Owner::Client, command);
        }
        for _ in 0..self.hooks_most / 2 {
            self.hook();
        }
    }

    /// A client asks for something.
    pub(crate) fn invent(&mut self) -> Checked {
        let ends = self.base.mode.deletes;
        let idea = self.base.random.weighted(&[
            (40, Idea::Ingest),
            (8, Idea::Repeat),
            (12, Idea::Hook),
            (4, Idea::HookUpdate),
            (10, Idea::Activate),
            (ends, Idea::End),
            (10, Idea::Retry),
            (3, Idea::CleanUp),
            (4, Idea::Trim),
        ]);
        match idea {
            Idea::Ingest => self.ingest(),
            Idea::Repeat => self.repeat(),
            Idea::Hook => self.hook(),
            Idea::HookUpdate => {
                let random = &mut self.base.random;
                let method = random.one_in(3).then(|| method(random.pick::<&str>(&METHODS)));
                let max_retries = random.one_in(2).then(|| small(random.below(7)));
                let timeout_ms = random.one_in(3).then(|| random.between(1_000, 30_000));
                self.change(HookChange::Update(HookUpdate { max_retries, timeout_ms, method }));
            }
            Idea::Activate => {
                let active = self.base.random.percent(60);
                self.change(HookChange::Activate(active));
            }
            Idea::End => self.change(HookChange::End),
            Idea::Retry => self.retry(),
            Idea::CleanUp => self.clean_up(),
            Idea::Trim => return self.trim(),
        }
        Ok(())
    }

    fn tenant(&mut self) -> Tenant {
        self.base.random.pick(&self.tenants).clone()
    }

    fn ingest(&mut self) {
        if self.durable.events.len() >= self.events_most {
            return;
        }
        let tenant = self.tenant();
        let many = if self.base.random.one_in(4) { 12 } else { 3 };
        let (mut events, mut payload) = (Vec::new(), Vec::new());
        let first_id = Ulid::first_of_many(self.base.now, self.next_number().to_be_bytes());
        let count = usize::try_from(self.base.random.between(1, many + 1)).expect("a few");
        for fresh in first_id.and_following().take(count) {
            let named = self.base.random.one_in(2);
            let id: Arc<str> = if named {
                format!("e{}", self.next_number()).into()
            } else {
                fresh.to_string().into()
            };
            let kind = EventType::parse(self.base.random.pick::<&str>(&KINDS)).expect("a type");
            let filler = "x".repeat(self.base.random.index(60));
            let said = format!("{{\"id\":\"{id}\",\"said\":\"{filler}\"}}");
            events.push(NewEvent { id, named, kind, len: said.len() });
            payload.extend_from_slice(said.as_bytes());
            payload.push(b',');
        }
        let number = self.next_number();
        let batch = self.base.random.one_in(2).then(|| format!("b{number}").into());
        let (stream, payload) = (Engine::event_stream(&tenant), Bytes::from(payload));
        let ingest = Ingest { tenant, stream, events, first_id, payload, batch };
        if ingest.batch.is_some() {
            self.sent.push(ingest.clone());
        }
        let wrong = self.unfit.contains(&ingest.tenant) && self.base.random.one_in(12);
        let stream = if wrong { unfit() } else { ingest.stream.clone() };
        self.send(Owner::Client, Command::Ingest(Box::new(Ingest { stream, ..ingest })));
    }

    /// A batch comes once more, whether or not its sender was told that it is in.
    fn repeat(&mut self) {
        if !self.sent.is_empty() {
            let ingest = self.base.random.pick(&self.sent).clone();
            self.send(Owner::Client, Command::Ingest(Box::new(ingest)));
        }
    }

    /// Hooks that were asked for and are not there yet.
    fn asked_for(&self) -> usize {
        let is_hook = |errand: &&Errand| matches!(errand.command, Command::Hook { .. });
        self.errands.iter().filter(is_hook).count()
    }

    fn hook(&mut self) {
        if self.decided.hooks.len() + self.asked_for() >= self.hooks_most {
            return;
        }
        let tenant = self.tenant();
        let name = format!("h{}", self.next_number()).into();
        let since = match self.base.random.below(4) {
            0 => Since::All,
            1 if self.durable.events.len() > self.trims_asked => {
                let kept = self.durable.events.get(self.trims_asked..).expect("there are more");
                Since::Event(self.base.random.pick(kept).id.clone())
            }
            _ => Since::New,
        };
        let random = &mut self.base.random;
        let spec = HookSpec::Events(EventHookSpec {
            pattern: EventPattern::parse(random.pick::<&str>(&PATTERNS)).expect("a pattern"),
            worker: WorkerId::parse(random.pick::<&str>(&WORKERS)).expect("a worker"),
            binding: None,
            method: method(random.pick::<&str>(&METHODS)),
            max_retries: small(random.below(7)),
            timeout_ms: *random.pick(&[1_000, 5_000, 30_000]),
            secret: None,
            ordered: random.one_in(3),
        });
        self.send(Owner::Client, Command::Hook { tenant, name, spec, since });
    }

    fn change(&mut self, change: HookChange) {
        let names: Vec<Arc<str>> = self.durable.hooks.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = self.base.random.pick(&names).clone();
        let tenant = match self.durable.hooks.get(&name) {
            Some(hook) if !self.base.random.one_in(20) => hook.tenant.clone(),
            _ => self.tenant(),
        };
        self.send(Owner::Client, Command::ChangeHook { tenant, name, change });
    }

    fn retry(&mut self) {
        let dead: Vec<_> = self.seen.dead_letters.iter().copied().collect();
        let Some(hook) = dead.first() else { return };
        let id = if dead.is_empty() { *hook } else { *self.base.random.pick(&dead) };
        let tenant = match self.seen.hooks.get(&id.hook) {
            Some(hook) if !self.base.random.one_in(20) => hook.tenant.clone(),
            _ => self.tenant(),
        };
        self.send(Owner::Client, Command::Retry { tenant, id });
    }

    fn clean_up(&mut self) {
        let hooks: Vec<_> = self.seen.hooks.keys().copied().collect();
        if hooks.is_empty() {
            return;
        }
        let hook = *self.base.random.pick(&hooks);
        let ago = self.base.random.below(20_000);
        // Nothing that has not become durable yet is older than this.
        let cutoff = Millis(self.settled_at.0.saturating_sub(ago));
        self.history.cutoff = self.history.cutoff.max(cutoff);
        self.send(Owner::Client, Command::CleanUp { hook, cutoff, after: Bytes::new() });
    }

    /// The oldest events of a tenant may be forgotten. Whoever asks for a hook that begins with an
    /// event knows that it is there, so nobody does meanwhile.
    fn trim(&mut self) -> Checked {
        if self.asked_for() > 0 {
            return Ok(());
        }
        let tenant = self.tenant();
        let ago = self.base.random.below(20_000);
        let cutoff = Millis(self.settled_at.0.saturating_sub(ago));
        let reader = self.life().shared.state.reader();
        let look = Look::take(&reader, &tenant, cutoff);
        let look = look.map_err(|error| violated(format!("a look failed: {error}")))?;
        if let Some(look) = look {
            let until = self.seen.all_events().take_while(|(no, _)| **no < look.until);
            self.trims_asked = self.trims_asked.max(until.count());
            let stream = Engine::event_stream(&tenant);
            self.send(Owner::Client, Command::Trim { tenant, stream, look });
        }
        Ok(())
    }
}

fn method(name: &str) -> RpcMethod {
    RpcMethod::parse(name).expect("a method")
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("a small number")
}
