//! What clients ask for.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::{FaceId, OpenDeliveries};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::replay::{LetterAction, ReplaySelection};
use reveille_core::event;
use reveille_core::{Millis, Tenant};
use reveille_engine::deliveries::dead_letter::DiscardDeadLetter;
use reveille_engine::deliveries::replay::StartReplay;
use reveille_engine::deliveries::retention::ExpireDeliveries;

use super::action::{Action, StreamChange};
use super::face::{
    ChangeReminderHook, CreateReminderHook, FACE, MuteSubject, Occurrence, ReminderSpec,
    RevokeHook, SetReminder, Style,
};
use super::{ENDPOINTS, Reminders};

const SUBJECTS: [&str; 8] = ["door", "lamp", "stove", "cat", "rent", "tax", "tea", "sun"];

#[derive(Debug, Clone, Copy)]
enum ClientAction {
    Set,
    Mute,
    Hook,
    Change,
    Revoke,
    Activate,
    End,
    Retry,
    Discard,
    Replay,
    Expire,
    Stream,
}

fn small(number: u64) -> u8 {
    u8::try_from(number).expect("a small number")
}

impl Reminders {
    /// A client asks for something.
    pub(super) fn ask_for_something(&mut self) {
        let ends = self.base.mode.deletes;
        let action = self.base.random.weighted(&[
            (60, ClientAction::Set),
            (10, ClientAction::Mute),
            (4, ClientAction::Hook),
            (10, ClientAction::Change),
            (1, ClientAction::Revoke),
            (10, ClientAction::Activate),
            (ends, ClientAction::End),
            (8, ClientAction::Retry),
            (3, ClientAction::Discard),
            (4, ClientAction::Replay),
            (2, ClientAction::Expire),
            (5, ClientAction::Stream),
        ]);
        match action {
            ClientAction::Set => self.set_reminder(),
            ClientAction::Mute => self.mute(),
            ClientAction::Hook => self.create_hook(),
            ClientAction::Change => self.change_hook(),
            ClientAction::Revoke => {
                if let Some((_, tenant, name)) = self.any_hook() {
                    self.ever_revoked.insert(name.clone());
                    self.ask(Action::Revoke(RevokeHook { tenant, name }));
                }
            }
            ClientAction::Activate => {
                if let Some((face, tenant, name)) = self.any_hook() {
                    let active = self.base.random.percent(60);
                    self.ask(Action::Activate { face, tenant, name, active });
                }
            }
            ClientAction::End => {
                if let Some((face, tenant, name)) = self.any_hook() {
                    let open = self.draw_open();
                    self.ask(Action::End { face, tenant, name, open });
                }
            }
            ClientAction::Retry => self.retry(),
            ClientAction::Discard => {
                let tenant = self.tenant();
                if let Some(id) = self.any_dead_letter() {
                    self.ask(Action::Discard(DiscardDeadLetter { tenant, id }));
                }
            }
            ClientAction::Replay => self.replay(),
            ClientAction::Expire => self.expire(),
            ClientAction::Stream => self.change_stream(),
        }
    }

    fn tenant(&mut self) -> Tenant {
        self.base.random.pick(&self.tenants).clone()
    }

    fn subject(&mut self) -> Arc<str> {
        (*self.base.random.pick(&SUBJECTS)).into()
    }

    fn set_reminder(&mut self) {
        if self.reminders >= self.reminders_max {
            return;
        }
        self.reminders += 1;
        let (tenant, subject) = (self.tenant(), self.subject());
        let name = format!("r{}", self.next_number()).into();
        let random = &mut self.base.random;
        let longest = if random.one_in(6) { 40 } else { 20 };
        let text = "x".repeat(random.index(longest)).into();
        let ahead = *random.pick(&[0, 1, 500, 5_000, 60_000]);
        let topic = u8::try_from(random.below(3)).expect("a small number");
        let at = self.base.now + ahead;
        let reminder = Occurrence { name, topic, subject, text, at };
        self.ask(Action::Set(SetReminder { tenant, reminder }));
    }

    fn mute(&mut self) {
        let (tenant, subject) = (self.tenant(), self.subject());
        let is_muted = self.base.random.percent(30);
        if is_muted {
            self.ever_muted.insert((tenant.clone(), subject.clone()));
        }
        self.ask(Action::Mute(MuteSubject { tenant, subject, is_muted }));
    }

    pub(super) fn create_hook(&mut self) {
        if self.hooks >= 2 * self.hooks_max {
            return;
        }
        self.hooks += 1;
        let tenant = self.tenant();
        let name = format!("h{}", self.next_number()).into();
        let style = Style(self.draw_style());
        let spec = self.draw_spec(style);
        self.ask(Action::CreateHook(CreateReminderHook { tenant, name, spec }));
    }

    /// Most hooks have no limits, so that there are some who need not wait.
    fn draw_style(&mut self) -> u16 {
        let random = &mut self.base.random;
        let limits = if random.one_in(3) { random.below(8) << 7 } else { 0 };
        let outlived = if random.one_in(2) { 1 << 10 } else { 0 };
        u16::try_from(random.below(128) | limits | outlived).expect("a small number")
    }

    fn draw_spec(&mut self, style: Style) -> ReminderSpec {
        let random = &mut self.base.random;
        let endpoint = small(random.below(ENDPOINTS.into()));
        let topics = small(random.between(1, 8));
        ReminderSpec { topics, endpoint, attempts: small(random.between(1, 4)), style }
    }

    /// The owner of a hook wishes something else.
    fn change_hook(&mut self) {
        if let Some((_, tenant, name)) = self.any_hook() {
            let style = self.durable.hooks[&name].spec().style;
            let spec = self.draw_spec(style);
            self.ask(Action::ChangeHook(ChangeReminderHook { tenant, name, spec }));
        }
    }

    /// A hook, perhaps in the name of somebody else or of another face, who must not find it.
    fn any_hook(&mut self) -> Option<(FaceId, Tenant, Arc<str>)> {
        let names: Vec<Arc<str>> = self.durable.hooks.keys().cloned().collect();
        if names.is_empty() {
            return None;
        }
        let name = self.base.random.pick(&names).clone();
        let mine = self.durable.hooks[&name].tenant.clone();
        let tenant = if self.base.random.one_in(12) { self.tenant() } else { mine };
        let face = if self.base.random.one_in(12) { event::hook::FACE } else { FACE };
        Some((face, tenant, name))
    }

    pub(super) fn draw_open(&mut self) -> OpenDeliveries {
        if self.base.random.percent(50) { OpenDeliveries::Bury } else { OpenDeliveries::Drop }
    }

    /// Also one that nobody can have made again: its hook has ended.
    fn any_dead_letter(&mut self) -> Option<DeliveryId> {
        let dead: Vec<_> = self.seen.dead_letters.iter().copied().collect();
        if dead.is_empty() { None } else { Some(*self.base.random.pick(&dead)) }
    }

    fn retry(&mut self) {
        let Some(id) = self.any_dead_letter() else { return };
        let ended = self.seen.ended.get(&id.hook).map(|ended| &ended.hook);
        if let Some(hook) = self.seen.hooks.get(&id.hook).or(ended) {
            let tenant = hook.tenant.clone();
            self.ask(Action::Retry { tenant, id });
        }
    }

    /// Dead letters of a tenant, or of one of its hooks, are to be made again, or discarded.
    fn replay(&mut self) {
        let tenant = self.tenant();
        let letter = self.any_dead_letter().filter(|_| self.base.random.percent(50));
        let hook = letter.map(|id| id.hook);
        let is_meant = |id: &&DeliveryId| {
            let letter = self.seen.letters.get(id);
            letter.is_some_and(|it| it.0 == tenant) && hook.is_none_or(|hook| hook == id.hook)
        };
        let total = self.seen.dead_letters.iter().filter(is_meant).count() as u64;
        let (from, to) = (Millis(0), self.base.now + 1);
        let original = self.base.random.percent(50);
        let discards = self.base.random.percent(20);
        let action = if discards { LetterAction::Discard } else { LetterAction::Replay };
        let (hooks, ids) = (hook.into_iter().collect(), Vec::new());
        let selection = ReplaySelection { action, hooks, why: None, from, to, ids, original };
        let reason = format!("because of {}", self.next_number());
        let (actor, reason) = ("somebody".into(), Some(reason.into()));
        self.ask(Action::Replay(StartReplay { tenant, selection, total, actor, reason }));
    }

    /// What waits for a hook that is not active is given up, if that has lasted.
    fn expire(&mut self) {
        let hooks: Vec<_> = self.seen.held.iter().map(|id| id.hook).collect();
        if hooks.is_empty() {
            return;
        }
        let hook = *self.base.random.pick(&hooks);
        self.ever_expired.insert(hook);
        let (cutoff, after) = (self.base.now, Bytes::new());
        self.ask(Action::Expire(ExpireDeliveries { hook, cutoff, after }));
    }

    /// A stream is closed, or makes room for another one.
    fn change_stream(&mut self) {
        let (tenant, endpoint) = (self.tenant(), small(self.base.random.below(ENDPOINTS.into())));
        let change = self.base.random.weighted(&[
            (2, StreamChange::CreateText),
            (2, StreamChange::Close),
            (6, StreamChange::Delete),
        ]);
        self.closes_streams |= matches!(change, StreamChange::Close);
        self.ask(Action::Stream { tenant, endpoint, change });
    }
}
