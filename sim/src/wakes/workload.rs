//! What clients ask for.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::{Dialect, SyncDone};
use reveille_core::pattern::Pattern;
use reveille_core::stream::create::Create;
use reveille_core::stream::{Body, Expiry};
use reveille_core::subscription::{
    Coalescing, RetrySettings, SubscriptionChange, SubscriptionSpec, Target,
};
use reveille_core::{ContentType, Offset, ReadFrom, StreamPath};

use super::Wakes;
use super::action::{Action, TokenAction};
use super::agent::text;
use super::request::Sender;
use crate::base::Origin;

const PATTERNS: [&str; 4] = ["/a/*", "/b/*", "/**", "/a/0"];
const NAMES: [&str; 8] = ["one", "two", "three", "four", "five", "six", "seven", "eight"];

#[derive(Debug, Clone, Copy)]
enum ClientAction {
    Append,
    Create,
    Delete,
    Subscribe,
    Pause,
    Change,
    Unsubscribe,
    Edit,
    Claim,
}

impl Wakes {
    /// Most streams and some subscriptions are there from the beginning.
    pub(super) fn begin(&mut self) {
        for path in self.paths.clone() {
            if !self.base.random.one_in(4) {
                self.create(path);
            }
        }
        for name in NAMES.iter().take(self.names) {
            self.subscribe((*name).into());
        }
    }

    /// A client asks for something.
    pub(super) fn ask_for_something(&mut self) {
        let deletes = self.base.mode.deletes;
        let action = self.base.random.weighted(&[
            (50, ClientAction::Append),
            (20, ClientAction::Create),
            (deletes, ClientAction::Delete),
            (14, ClientAction::Subscribe),
            (12, ClientAction::Pause),
            (4, ClientAction::Change),
            (deletes.div_ceil(2), ClientAction::Unsubscribe),
            (5, ClientAction::Edit),
            (16, ClientAction::Claim),
        ]);
        let path = self.base.random.pick(&self.paths).clone();
        let name: Arc<str> = (*self.base.random.pick(&NAMES[..self.names])).into();
        match action {
            ClientAction::Append => {
                let path = self.base.random.pick(&self.paths[..5]).clone();
                let token = format!("#{}", self.next_number());
                let action = Action::Append { path: path.clone(), request: text(&token) };
                self.ask_tokens(action, vec![(path, token)]);
            }
            ClientAction::Create => self.create(path),
            ClientAction::Delete => self.ask(Action::Delete { path }),
            ClientAction::Subscribe => self.subscribe(name),
            ClientAction::Pause => self.pause(name),
            ClientAction::Change => self.change(name),
            ClientAction::Unsubscribe => {
                let dialect = self.dialect();
                self.ask(Action::Unsubscribe { dialect, name });
            }
            ClientAction::Edit => {
                let add = if self.base.random.one_in(2) { vec![path.clone()] } else { Vec::new() };
                let remove =
                    self.base.random.one_in(2).then(|| self.base.random.pick(&self.paths).clone());
                self.ask(Action::EditStreams { name, add, remove });
            }
            ClientAction::Claim => {
                let worker = format!("w{}", self.base.random.below(3)).into();
                self.ask(Action::Claim { name, worker });
            }
        }
    }

    /// Stops a subscription, or lets one go on.
    fn pause(&mut self, name: Arc<str>) {
        let paused = Some(self.base.random.one_in(2));
        let change = SubscriptionChange { paused, ..SubscriptionChange::default() };
        self.ask(Action::Change { name, change });
    }

    /// Lets a subscription be told elsewhere, or at other times.
    fn change(&mut self, name: Arc<str>) {
        let mut change = SubscriptionChange::default();
        if self.base.random.one_in(2) {
            let host = self.base.random.below(3);
            change.webhook = Some(format!("https://{host}.example.com/hook").into());
        } else {
            change.min_interval_ms = Some(*self.base.random.pick(&[0, 3_000]));
            change.max_delay_ms = Some(*self.base.random.pick(&[None, Some(2_000)]));
        }
        self.ask(Action::Change { name, change });
    }

    fn ask_tokens(&mut self, action: Action, tokens: Vec<(StreamPath, String)>) {
        let asked = TokenAction { tenant: self.tenant.clone(), action, tokens };
        self.send_tokens(Origin::Client, Sender::Anybody, asked);
    }

    fn dialect(&mut self) -> Dialect {
        if self.base.random.one_in(2) { Dialect::Webhooks } else { Dialect::Leases }
    }

    fn create(&mut self, path: StreamPath) {
        let is_wake = path.as_str().starts_with("/wake");
        let kind = if is_wake { "application/json" } else { "text/plain" };
        let kind = ContentType::parse(kind);
        let token = format!("#{}", self.next_number());
        let with_body = !is_wake && self.base.random.one_in(2);
        let raw = if with_body { Bytes::from(format!("{token};")) } else { Bytes::new() };
        let expiry = match self.base.random.below(8) {
            0 => Expiry::Ttl(self.base.random.between(1, 100)),
            _ => Expiry::Never,
        };
        let body = Body::new(raw, kind.as_ref());
        let request = Create { content_type: kind, expiry, body, ..Create::default() };
        let action = Action::Create { path: path.clone(), request };
        let tokens = if with_body { vec![(path, token)] } else { Vec::new() };
        self.ask_tokens(action, tokens);
    }

    fn subscribe(&mut self, name: Arc<str>) {
        let dialect = self.dialect();
        let pull = dialect == Dialect::Leases && self.base.random.one_in(2);
        let target = if pull {
            Target::Pull(self.paths[5].clone())
        } else {
            Target::Webhook("https://example.com/hook".into())
        };
        let named = dialect == Dialect::Leases && self.base.random.one_in(3);
        let streams =
            if named { vec![self.base.random.pick(&self.paths).clone()] } else { Vec::new() };
        let pattern = (!named || self.base.random.one_in(2))
            .then(|| Pattern::parse(self.base.random.pick::<&str>(&PATTERNS)).expect("a pattern"));
        let coalescing = Coalescing {
            min_interval_ms: *self.base.random.pick(&[0, 0, 0, 3_000]),
            max_delay_ms: *self.base.random.pick(&[None, None, None, Some(2_000)]),
            wake_if: None,
            sync_done: *self.base.random.pick(&[SyncDone::Tail, SyncDone::Snapshot]),
        };
        let start = match dialect {
            Dialect::Webhooks => *self.base.random.pick(&[
                ReadFrom::Now,
                ReadFrom::Now,
                ReadFrom::Start,
                ReadFrom::At(Offset::new(6)),
            ]),
            Dialect::Leases => ReadFrom::Now,
        };
        let spec = SubscriptionSpec {
            dialect,
            name,
            pattern,
            streams,
            target,
            description: None,
            lease_ms: self.base.random.one_in(2).then_some(5_000),
            coalescing,
            retry: RetrySettings::default(),
            start,
            base_url: None,
        };
        self.ask(Action::Subscribe(spec));
    }
}
