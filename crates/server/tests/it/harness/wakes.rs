//! A server whose time stands still, an endpoint, and what tests of wakes do with both.

use reveille_core::consumer::{Consumer, Dialect, Phase, Stage};
use reveille_core::subscription::Timings;
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_engine::doors::Clock;
use reveille_schema::record::ConsumerRecord;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::{Answer, Headers};
use super::clock::HandClock;
use super::server::{Setup, TestServer};
use super::sink::{Call, Sink};
use super::{eventually, guarded};

/// The zero offset: the tail of an empty stream.
pub(crate) const ZERO: &str = "0000000000000000_0000000000000000";
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

/// Everything that a test of wakes needs.
pub(crate) struct Wakes {
    pub(crate) clock: HandClock,
    pub(crate) server: TestServer,
    pub(crate) sink: Sink,
    pub(crate) setup: Setup,
    directory: TempDir,
    /// An endpoint whose wakes show that everything before them has happened.
    canary: Sink,
    canaries: u64,
}

impl Wakes {
    pub(crate) async fn start() -> Wakes {
        Wakes::with(Timings::default()).await
    }

    pub(crate) async fn with(timings: Timings) -> Wakes {
        let clock = HandClock::new();
        let setup = Setup { timings, ..Setup::on(&clock) };
        Wakes::of(clock, setup).await
    }

    pub(crate) async fn of(clock: HandClock, setup: Setup) -> Wakes {
        let directory = tempfile::tempdir().unwrap();
        let server = setup.start_in(directory.path()).await;
        let (sink, canary) = (Sink::start().await, Sink::start().await);
        Wakes { clock, server, sink, setup, directory, canary, canaries: 0 }
    }

    /// Stops the server in order and starts it anew.
    pub(crate) async fn restart(self) -> Wakes {
        self.again(true, || ()).await
    }

    /// Something happens while it is down.
    pub(crate) async fn restart_after(self, meanwhile: impl FnOnce()) -> Wakes {
        self.again(true, meanwhile).await
    }

    /// Cuts the server off from everything in the middle of what it does, and starts it anew.
    pub(crate) async fn crash(self) -> Wakes {
        self.again(false, || ()).await
    }

    async fn again(self, in_order: bool, meanwhile: impl FnOnce()) -> Wakes {
        if in_order {
            self.server.stop().await;
        } else {
            guarded("the engine to stop", self.server.engine.shutdown()).await;
            self.server.drop_all().await;
        }
        meanwhile();
        let server = self.setup.start_in(self.directory.path()).await;
        Wakes { server, ..self }
    }

    /// Stops the server; what it left is in the directory.
    pub(crate) async fn stop(self) -> TempDir {
        self.server.stop().await;
        self.directory
    }

    /// Where the server keeps everything.
    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now().0
    }

    /// Makes a subscription to the sink; returns its secret.
    pub(crate) async fn subscribe(&self, name: &str, pattern: &str) -> String {
        self.subscribe_with(name, pattern, json!({})).await
    }

    /// Makes a subscription to the sink with more fields than that.
    pub(crate) async fn subscribe_with(&self, name: &str, pattern: &str, more: Value) -> String {
        let mut body = json!({ "webhook": self.sink.url() });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = self.put_subscription(name, pattern, &body).await.expect(201);
        answer.json()["webhook_secret"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn put_subscription(&self, name: &str, at: &str, body: &Value) -> Answer {
        let target = format!("{at}?subscription={name}");
        self.server.ask("PUT", &target, &[JSON], body.to_string().as_bytes()).await
    }

    /// Makes a JSON stream; the body is its first content.
    pub(crate) async fn create(&self, path: &str, body: &str) -> String {
        let answer = self.server.ask("PUT", path, &[JSON], body.as_bytes()).await.expect(201);
        answer.next_offset().to_owned()
    }

    /// Appends to a JSON stream; returns its tail.
    pub(crate) async fn append(&self, path: &str, body: &str) -> String {
        let answer = self.server.append(path, "application/json", body.as_bytes()).await;
        assert_eq!(answer.status() / 100, 2, "{answer}");
        answer.next_offset().to_owned()
    }

    /// The next request to the sink.
    pub(crate) async fn woken(&mut self) -> Call {
        self.sink.next().await
    }

    /// A callback with the token of a notice.
    pub(crate) async fn call(&self, notification: &Call, body: Value) -> Answer {
        self.call_as(&notification.consumer(), &notification.token(), body).await
    }

    pub(crate) async fn call_as(&self, consumer: &str, token: &str, body: Value) -> Answer {
        self.call_raw(consumer, token, body.to_string().as_bytes()).await
    }

    pub(crate) async fn call_raw(&self, consumer: &str, token: &str, body: &[u8]) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers: Headers<'_> = &[("authorization", &bearer), JSON];
        self.server.ask("POST", &format!("/callback/{consumer}"), headers, body).await
    }

    /// Claims a wake, acknowledges everything up to `offset` of its stream, and is done.
    pub(crate) async fn finish(&self, notification: &Call, offset: &str) -> Answer {
        let acks = json!([{ "path": notification.primary(), "offset": offset }]);
        let body = json!({ "epoch": notification.epoch(), "wake_id": notification.wake_id(),
                           "acks": acks, "done": true });
        self.call(notification, body).await
    }

    /// Checks that nobody else was told: everything that was to happen by now has happened.
    pub(crate) async fn quiet(&mut self, why: &str) {
        if self.canaries == 0 {
            let body = json!({ "webhook": self.canary.url(), "max_delay": "1ms" });
            self.put_subscription("canary", "/zz-canary/*", &body).await.expect(201);
        }
        for _ in 0..2 {
            self.canaries += 1;
            let path = format!("/zz-canary/{}", self.canaries);
            self.create(&path, "[1]").await;
            // It is told by the due index, which has done everything earlier by then.
            self.clock.advance(1);
            let call = self.canary.next().await;
            assert_eq!(call.primary(), path);
            call.done();
            self.until("canary", &path, |it| matches!(it.phase, Phase::Idle { .. })).await;
        }
        if let Some(call) = self.sink.come() {
            panic!("{why}, but a webhook came: {}", call.json());
        }
    }

    /// A consumer as it is kept.
    pub(crate) fn record(&self, subscription: &str, path: &str) -> Option<ConsumerRecord> {
        let (tenant, engine) = (Tenant::default_tenant(), &self.server.engine);
        let subscription =
            engine.subscription(&tenant, Dialect::Webhooks, subscription).unwrap()?;
        let path = StreamPath::parse(path).unwrap();
        engine.consumer(&subscription, Some(&path)).unwrap().and_then(|item| item.record)
    }

    /// Waits until a consumer has come so far.
    pub(crate) async fn until(
        &self,
        subscription: &str,
        path: &str,
        is: impl Fn(&Consumer) -> bool,
    ) -> Consumer {
        let look = async || {
            let found = self.record(subscription, path)?.consumer;
            is(&found).then_some(found)
        };
        eventually("a consumer to come so far", look).await
    }

    pub(crate) async fn live(&self, subscription: &str, path: &str) -> Millis {
        let is = |it: &Consumer| matches!(it.phase, Phase::Live { .. });
        match self.until(subscription, path, is).await.phase {
            Phase::Live { until } => until,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn idle(&self, subscription: &str, path: &str) {
        self.until(subscription, path, |it| matches!(it.phase, Phase::Idle { .. })).await;
    }

    /// Waits until an attempt has failed; returns which, and when the next one is due.
    pub(crate) async fn paused(&self, subscription: &str, path: &str) -> (u32, u64) {
        let is =
            |it: &Consumer| matches!(it.phase, Phase::Waking { stage: Stage::Paused { .. }, .. });
        match self.until(subscription, path, is).await.phase {
            Phase::Waking { attempt, stage: Stage::Paused { until } } => (attempt, until.0),
            other => panic!("{other:?}"),
        }
    }

    /// Moves the time to then.
    pub(crate) fn advance_to(&self, at: u64) {
        self.clock.advance(at - self.now());
    }
}
