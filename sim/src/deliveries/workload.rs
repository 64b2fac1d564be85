//! What clients ask for.

use reveille_core::delivery::policy::DeliveryLimits;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::event::hook::{EventHookSpec, FormerSpec, HookUpdate, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::event::{EventPattern, EventType, Ulid};
use reveille_core::limits::FORMER_PATTERNS_MAX;
use reveille_core::{Millis, Tenant};

use super::Deliveries;
use super::action::{Action, HookChange};
use super::engine::{self, IngestEvents, NewEvent, StartFrom};
use super::model::unfit;
use crate::base::CheckResult;

const KINDS: [&str; 4] = ["order.created", "order.paid", "user.created", "ping"];
const PATTERNS: [&str; 5] = ["**", "order.*", "*.created", "ping", "order.paid"];
const WORKERS: [&str; 4] = ["w1", "w2", "w3", "w4"];
const METHODS: [&str; 2] = ["receive", "again"];

#[derive(Debug, Clone, Copy)]
enum ClientAction {
    Ingest,
    Repeat,
    Hook,
    HookUpdate,
    Activate,
    Pause,
    End,
    Retry,
    Forget,
    Trim,
}

impl Deliveries {
    /// Some hooks are there from the beginning.
    pub(super) fn begin(&mut self) {
        for tenant in self.tenants.clone() {
            self.ask(Action::CreateTextStream { tenant, path: unfit() });
        }
        for _ in 0..self.hooks_max / 2 {
            self.hook();
        }
    }

    /// A client asks for something.
    pub(super) fn ask_for_something(&mut self) -> CheckResult {
        let ends = self.base.mode.deletes;
        let action = self.base.random.weighted(&[
            (40, ClientAction::Ingest),
            (8, ClientAction::Repeat),
            (12, ClientAction::Hook),
            (4, ClientAction::HookUpdate),
            (10, ClientAction::Activate),
            (8, ClientAction::Pause),
            (ends, ClientAction::End),
            (10, ClientAction::Retry),
            (3, ClientAction::Forget),
            (4, ClientAction::Trim),
        ]);
        match action {
            ClientAction::Ingest => self.ingest(),
            ClientAction::Repeat => self.repeat(),
            ClientAction::Hook => self.hook(),
            ClientAction::HookUpdate => {
                let random = &mut self.base.random;
                let method = random.one_in(3).then(|| method(random.pick::<&str>(&METHODS)));
                let max_retries = random.one_in(2).then(|| small(random.below(7)));
                let timeout_ms = random.one_in(3).then(|| random.between(1_000, 30_000));
                let pattern = random.one_in(2).then(|| pattern(random.pick::<&str>(&PATTERNS)));
                self.change(HookChange::Update(HookUpdate {
                    max_retries,
                    timeout_ms,
                    method,
                    pattern,
                    ..HookUpdate::default()
                }));
            }
            ClientAction::Activate => {
                let active = self.base.random.percent(60);
                self.change(HookChange::Activate(active));
            }
            ClientAction::Pause => {
                let paused = self.base.random.percent(40);
                self.change(HookChange::Pause(paused));
            }
            ClientAction::End => self.change(HookChange::End),
            ClientAction::Retry => self.retry(),
            ClientAction::Forget => self.forget(),
            ClientAction::Trim => return self.trim(),
        }
        Ok(())
    }

    fn tenant(&mut self) -> Tenant {
        self.base.random.pick(&self.tenants).clone()
    }

    fn ingest(&mut self) {
        if self.durable.events.len() >= self.events_max {
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
        let (stream, payload) = (engine::event_stream(&tenant), Bytes::from(payload));
        let ingest = IngestEvents { tenant, stream, events, first_id, payload, batch };
        if ingest.batch.is_some() {
            self.named.push(ingest.clone());
        }
        let wrong = self.unfit.contains(&ingest.tenant) && self.base.random.one_in(12);
        let stream = if wrong { unfit() } else { ingest.stream.clone() };
        self.ask(Action::Ingest(Box::new(IngestEvents { stream, ..ingest })));
    }

    /// A batch comes once more, whether or not its sender was told that it is in.
    fn repeat(&mut self) {
        if !self.named.is_empty() {
            let ingest = self.base.random.pick(&self.named).clone();
            self.ask(Action::Ingest(Box::new(ingest)));
        }
    }

    fn hook(&mut self) {
        if self.decided.hooks.len() + self.hooks_asked >= self.hooks_max {
            return;
        }
        let tenant = self.tenant();
        let name = format!("h{}", self.next_number()).into();
        let start = match self.base.random.below(4) {
            0 => StartFrom::Beginning,
            1 if self.durable.events.len() > self.trims_asked => {
                let kept = self.durable.events.get(self.trims_asked..).expect("there are more");
                StartFrom::Event(self.base.random.pick(kept).id.clone())
            }
            _ => StartFrom::Now,
        };
        let random = &mut self.base.random;
        let spec = EventHookSpec {
            pattern: pattern(random.pick::<&str>(&PATTERNS)),
            worker: WorkerId::parse(random.pick::<&str>(&WORKERS)).expect("a worker"),
            binding: None,
            method: method(random.pick::<&str>(&METHODS)),
            max_retries: small(random.below(7)),
            timeout_ms: *random.pick(&[1_000, 5_000, 30_000]),
            secret: None,
            ordered: random.one_in(3),
            retry: Retry::default(),
            limits: DeliveryLimits::default(),
            former: FormerSpec::default(),
        };
        self.hooks_asked += 1;
        self.ask(Action::CreateHook { tenant, name, spec, start });
    }

    /// Whoever has a name for what it sends may send it again.
    pub(super) fn repeat_if_named(&mut self, action: Action) {
        if let Action::Ingest(ingest) = &action
            && ingest.batch.is_some()
            && self.base.random.percent(80)
        {
            self.ask(action);
        }
    }

    fn change(&mut self, mut change: HookChange) {
        let names: Vec<Arc<str>> = self.durable.hooks.keys().cloned().collect();
        if names.is_empty() {
            return;
        }
        let name = self.base.random.pick(&names).clone();
        if let HookChange::Update(HookUpdate { pattern: pattern @ Some(_), .. }) = &mut change {
            // More than are kept while older events are told would be refused.
            let asked = self.repatterned.entry(name.clone()).or_default();
            *asked += 1;
            pattern.take_if(|_| *asked > FORMER_PATTERNS_MAX);
        }
        let tenant = match self.durable.hooks.get(&name) {
            Some(hook) if !self.base.random.one_in(20) => hook.tenant.clone(),
            _ => self.tenant(),
        };
        self.ask(Action::ChangeHook { tenant, name, change });
    }

    fn retry(&mut self) {
        let dead: Vec<_> = self.seen.dead_letters.iter().copied().collect();
        let Some(hook) = dead.first() else { return };
        let id = if dead.is_empty() { *hook } else { *self.base.random.pick(&dead) };
        let tenant = match self.seen.hooks.get(&id.hook) {
            Some(hook) if !self.base.random.one_in(20) => hook.tenant.clone(),
            _ => self.tenant(),
        };
        self.ask(Action::Retry { tenant, id });
    }

    fn forget(&mut self) {
        let hooks: Vec<_> = self.seen.hooks.keys().copied().collect();
        if hooks.is_empty() {
            return;
        }
        let hook = *self.base.random.pick(&hooks);
        let ago = self.base.random.below(20_000);
        // Nothing that has not become durable yet is older than this.
        let cutoff = Millis(self.settled_at.0.saturating_sub(ago));
        self.history.cutoff = self.history.cutoff.max(cutoff);
        self.ask(Action::Forget { hook, cutoff });
    }

    /// The oldest events of a tenant may be forgotten. Whoever asks for a hook that begins with an
    /// event knows that it is there, so nobody does meanwhile.
    fn trim(&mut self) -> CheckResult {
        if self.hooks_asked > 0 {
            return Ok(());
        }
        let tenant = self.tenant();
        let ago = self.base.random.below(20_000);
        let cutoff = Millis(self.settled_at.0.saturating_sub(ago));
        if let Some(plan) = engine::plan_trim(self.base.engine(), &tenant, cutoff)? {
            let until = self.seen.all_events().take_while(|(no, _)| **no < plan.until);
            self.trims_asked = self.trims_asked.max(until.count());
            self.ask(Action::Trim { tenant, plan });
        }
        Ok(())
    }
}

fn pattern(text: &str) -> EventPattern {
    EventPattern::parse(text).expect("a pattern")
}

fn method(name: &str) -> RpcMethod {
    RpcMethod::parse(name).expect("a method")
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("a small number")
}
