//! A server whose time stands still, a worker, and what tests of deliveries do with both.

use reveille_core::event::worker::{Binding, WorkerTemplate};
use reveille_core::subscription::Timings;
use reveille_engine::doors::Clock;
use reveille_server::Workers;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::Answer;
use super::clock::HandClock;
use super::server::{Setup, TestServer};
use super::sink::{Call, Sink};
use super::wakes::JSON;
use super::{eventually, guarded};

/// Everything that a test of deliveries needs. Workers without a binding are all at the sink.
pub(crate) struct Deliveries {
    pub(crate) clock: HandClock,
    pub(crate) server: TestServer,
    pub(crate) sink: Sink,
    pub(crate) setup: Setup,
    directory: TempDir,
    /// A worker whose deliveries show that everything before them has happened.
    canary: Sink,
    canaries: u64,
}

impl Deliveries {
    pub(crate) async fn start() -> Deliveries {
        Deliveries::with(|_| ()).await
    }

    /// With other settings.
    pub(crate) async fn with(change: impl FnOnce(&mut Setup)) -> Deliveries {
        let clock = HandClock::new();
        let (sink, canary) = (Sink::start().await, Sink::polite().await);
        let template = format!("http://127.0.0.1:{}/{{workerId}}/{{rpcMethod}}", sink.port());
        let binding = format!("CANARY=http://127.0.0.1:{}", canary.port());
        let workers = Workers {
            template: WorkerTemplate::parse(&template).unwrap(),
            bindings: [Binding::parse(&binding).unwrap()].into(),
        };
        let mut setup = Setup { workers, timings: Timings::default(), ..Setup::on(&clock) };
        change(&mut setup);
        let directory = tempfile::tempdir().unwrap();
        let server = setup.start_in(directory.path()).await;
        Deliveries { clock, server, sink, setup, directory, canary, canaries: 0 }
    }

    /// Stops the server in order and starts it anew.
    pub(crate) async fn restart(self) -> Deliveries {
        self.again(true, || ()).await
    }

    /// The same, with something done to what the server has left.
    pub(crate) async fn restart_after(self, meanwhile: impl FnOnce()) -> Deliveries {
        self.again(true, meanwhile).await
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// Cuts the server off from everything in the middle of what it does, and starts it anew.
    pub(crate) async fn crash(self) -> Deliveries {
        self.again(false, || ()).await
    }

    async fn again(self, in_order: bool, meanwhile: impl FnOnce()) -> Deliveries {
        if in_order {
            self.server.stop().await;
        } else {
            guarded("the engine to stop", self.server.engine.shutdown()).await;
            self.server.drop_all().await;
        }
        meanwhile();
        let server = self.setup.start_in(self.directory.path()).await;
        Deliveries { server, ..self }
    }

    pub(crate) async fn post(&self, target: &str, body: &Value) -> Answer {
        self.server.post(target, body).await
    }

    /// Makes a subscription; returns its id.
    pub(crate) async fn subscribe(&self, pattern: &str) -> String {
        self.subscribe_with(pattern, json!({})).await
    }

    /// Makes a subscription with more fields than that.
    pub(crate) async fn subscribe_with(&self, pattern: &str, more: Value) -> String {
        self.server.subscribed(pattern, more).await["subscriptionId"].as_str().unwrap().to_owned()
    }

    /// Takes one event in; returns its id.
    pub(crate) async fn ingest(&self, event: Value) -> String {
        let answer = self.post("/ingest", &event).await.expect(200).json();
        answer["eventIds"][0].as_str().unwrap().to_owned()
    }

    /// The next request to a worker.
    pub(crate) async fn called(&mut self) -> Call {
        self.sink.next().await
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now().0
    }

    /// Moves the time to then.
    pub(crate) fn advance_to(&self, at: u64) {
        self.clock.advance(at - self.now());
    }

    /// Waits until the only delivery of a subscription waits for its next attempt, and moves the
    /// time there. Returns how long that was.
    pub(crate) async fn to_next_attempt(&self, id: &str, failed: usize) -> u64 {
        let waits = |it: &Value| it["attempts"] == failed && !it["nextAttemptAt"].is_null();
        let delivery = self.until(id, waits).await;
        let at = delivery["nextAttemptAt"].as_u64().unwrap();
        let pause = at - self.now();
        self.advance_to(at);
        pause
    }

    /// The deliveries of a subscription, those of the oldest event first.
    pub(crate) async fn deliveries(&self, id: &str) -> Vec<Value> {
        let answer = self.server.get(&format!("/subscriptions/{id}/deliveries")).await.expect(200);
        answer.json()["deliveries"].as_array().unwrap().iter().rev().cloned().collect()
    }

    /// Waits until the last delivery of a subscription has come so far.
    pub(crate) async fn until(&self, id: &str, is: impl Fn(&Value) -> bool) -> Value {
        let look = async || self.deliveries(id).await.pop().filter(|it| is(it));
        eventually("a delivery to come so far", look).await
    }

    /// Waits until the last delivery of a subscription has this status.
    pub(crate) async fn until_status(&self, id: &str, status: &str) -> Value {
        self.until(id, |it| it["status"] == status).await
    }

    /// The subscription and its statistics.
    pub(crate) async fn status(&self, id: &str) -> Value {
        self.server.get(&format!("/subscriptions/status/{id}")).await.expect(200).json()
    }

    pub(crate) async fn dead_letters(&self, id: &str) -> Vec<Value> {
        let target = format!("/subscriptions/{id}/dead-letters");
        let answer = self.server.get(&target).await.expect(200).json();
        answer["deadLetters"].as_array().unwrap().clone()
    }

    /// Makes the newest dead letter of a subscription again.
    pub(crate) async fn retry_dead_letter(&self, id: &str) {
        let letter = self.dead_letters(id).await.remove(0);
        let letter = letter["id"].as_str().unwrap();
        let target = format!("/subscriptions/{id}/dead-letters/{letter}/retry");
        self.post(&target, &json!({})).await.expect(200);
    }

    pub(crate) async fn logs(&self, delivery: &Value) -> Vec<Value> {
        let id = delivery["id"].as_str().unwrap();
        let target = format!("/subscriptions/deliveries/{id}/logs");
        let answer = self.server.get(&target).await.expect(200).json();
        answer["logs"].as_array().unwrap().clone()
    }

    /// Checks that nobody else was called: everything that was to happen by now has happened.
    pub(crate) async fn quiet(&mut self, why: &str) {
        if self.canaries == 0 {
            let more = json!({ "workerId": "canary", "workerBinding": "CANARY" });
            self.subscribe_with("zz-canary", more).await;
        }
        for _ in 0..2 {
            self.canaries += 1;
            self.ingest(json!({ "type": "zz-canary", "n": self.canaries })).await;
            // One that was answered just before a crash comes again.
            while self.canary.next().await.json()["payload"]["n"] != self.canaries {}
        }
        while let Some(call) = self.sink.come() {
            // Some subscriptions are for everything.
            let canary = call.json()["type"] == "zz-canary";
            assert!(canary, "{why}, but a worker was called: {} {}", call.line, call.json());
            call.ok();
        }
    }
}

/// The types of the events in what was read from their stream.
pub(crate) fn event_kinds(text: &str) -> Vec<String> {
    let all: Value = serde_json::from_str(text).unwrap();
    all.as_array().unwrap().iter().map(|it| it["type"].as_str().unwrap().to_owned()).collect()
}

impl TestServer {
    /// Posts a JSON body.
    pub(crate) async fn post(&self, target: &str, body: &Value) -> Answer {
        self.ask("POST", target, &[JSON], body.to_string().as_bytes()).await
    }

    /// Makes a subscription with more fields than a pattern; returns the answer.
    pub(crate) async fn subscribed(&self, pattern: &str, more: Value) -> Value {
        let mut body = json!({ "workerId": "w", "pattern": pattern, "rpcMethod": "handle" });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        self.post("/subscriptions/subscribe", &body).await.expect(200).json()
    }
}
