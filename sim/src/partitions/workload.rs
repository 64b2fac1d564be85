//! What clients ask for.

use reveille_core::delivery::policy::DeliveryLimits;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::consumer::{Dialect, SyncDone};
use reveille_core::event::hook::{EventHookSpec, FormerSpec, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::event::{EventPattern, EventType, Ulid};
use reveille_core::pattern::Pattern;
use reveille_core::stream::Body;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::subscription::{Coalescing, RetrySettings, SubscriptionSpec, Target};
use reveille_core::{ContentType, ReadFrom, StreamPath, Tenant};

use super::Partitions;
use super::engine::{self, IngestEvents, NewEvent};
use super::request::Action;

/// Every tenant has streams of these names: what is one's is not another's.
const PATHS: [&str; 3] = ["/a/0", "/a/1", "/b"];
const HOOKS_MAX: usize = 4;

#[derive(Debug, Clone, Copy)]
enum ClientAction {
    Append,
    Create,
    CreateNew,
    Hook,
    Ingest,
}

impl Partitions {
    /// Every tenant has its streams, a subscription and a hook from the beginning.
    pub(super) fn begin(&mut self) {
        for tenant in self.tenants.clone() {
            self.subscribe(&tenant);
            self.hook(&tenant);
            for path in PATHS {
                self.create(&tenant, path);
            }
        }
    }

    pub(super) fn ask_for_something(&mut self) {
        let tenant = self.base.random.pick(&self.tenants).clone();
        let action = self.base.random.weighted(&[
            (50, ClientAction::Append),
            (4, ClientAction::Create),
            (6, ClientAction::CreateNew),
            (4, ClientAction::Hook),
            (30, ClientAction::Ingest),
        ]);
        match action {
            ClientAction::Append => self.append(&tenant),
            ClientAction::Create => {
                let path = *self.base.random.pick(&PATHS);
                self.create(&tenant, path);
            }
            ClientAction::CreateNew => {
                let path = format!("/new/{}", self.next_number());
                self.create(&tenant, &path);
            }
            ClientAction::Hook => self.hook(&tenant),
            ClientAction::Ingest => self.ingest(&tenant),
        }
        if !self.subscribed.contains(&tenant) {
            self.subscribe(&tenant);
        }
    }

    fn create(&mut self, tenant: &Tenant, path: &str) {
        let path = StreamPath::parse(path).expect("a path");
        let content_type = ContentType::parse("text/plain");
        let request = Create { content_type, ..Create::default() };
        self.ask(tenant, Action::Create { path, request });
    }

    fn append(&mut self, tenant: &Tenant) {
        let path = StreamPath::parse(self.base.random.pick::<&str>(&PATHS)).expect("a path");
        let token = format!("{tenant}#{};", self.next_number());
        let content_type = ContentType::parse("text/plain");
        let body = Body::new(Bytes::from(token.clone()), content_type.as_ref());
        let request = Append { content_type, body, ..Append::default() };
        self.ask(tenant, Action::Append { path, request, token });
    }

    fn subscribe(&mut self, tenant: &Tenant) {
        let spec = SubscriptionSpec {
            dialect: Dialect::Webhooks,
            name: "all".into(),
            pattern: Some(Pattern::parse("/**").expect("a pattern")),
            streams: Vec::new(),
            target: Target::Webhook("https://example.com/hook".into()),
            description: None,
            lease_ms: None,
            coalescing: Coalescing {
                min_interval_ms: 0,
                max_delay_ms: None,
                wake_if: None,
                // What came after the notice is told again.
                sync_done: SyncDone::Snapshot,
            },
            retry: RetrySettings::default(),
            start: ReadFrom::Now,
            base_url: None,
        };
        self.ask(tenant, Action::Subscribe(spec));
    }

    fn hook(&mut self, tenant: &Tenant) {
        if self.hooks.get(tenant).is_some_and(|hooks| hooks.len() >= HOOKS_MAX) {
            return;
        }
        let number = self.next_number();
        let spec = EventHookSpec {
            pattern: EventPattern::parse("**").expect("a pattern"),
            worker: WorkerId::parse(&format!("w{number}")).expect("a worker"),
            binding: None,
            method: RpcMethod::parse("receive").expect("a method"),
            max_retries: 50,
            timeout_ms: *self.base.random.pick(&[1_000, 5_000]),
            secret: None,
            ordered: self.base.random.one_in(3),
            retry: Retry::default(),
            limits: DeliveryLimits::default(),
            former: FormerSpec::default(),
        };
        self.ask(tenant, Action::CreateHook { name: format!("h{number}").into(), spec });
    }

    fn ingest(&mut self, tenant: &Tenant) {
        let first_id = Ulid::first_of_many(self.base.now, self.next_number().to_be_bytes());
        let (mut events, mut payload) = (Vec::new(), Vec::new());
        for _ in 0..self.base.random.between(1, 4) {
            let id: Arc<str> = format!("e{}", self.next_number()).into();
            let said = engine::said(tenant, &id);
            let kind = EventType::parse("order.paid").expect("a type");
            events.push(NewEvent { id, named: true, kind, len: said.len() });
            payload.extend_from_slice(&said);
            payload.push(b',');
        }
        let (stream, payload) = (engine::event_stream(tenant), Bytes::from(payload));
        let tenant_of_all = tenant.clone();
        let ingest =
            IngestEvents { tenant: tenant_of_all, stream, events, first_id, payload, batch: None };
        self.ask(tenant, Action::Ingest(Box::new(ingest)));
    }
}
