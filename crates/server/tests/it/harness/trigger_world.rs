//! A server whose time stands still, an endpoint, and what tests of triggers do with both.

use aws_lc_rs::hmac;
use reveille_engine::doors::Clock;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::Answer;
use super::clock::HandClock;
use super::server::{Setup, TestServer};
use super::sink::{Call, Sink};
use super::wakes::JSON;
use super::{eventually, guarded};

/// Where triggers of the tenant without a name are.
pub(crate) const TRIGGERS: &str = "/admin/v1/triggers";
/// The secret that signs, unless a test makes others.
pub(crate) const SECRET: &str = "whsec_of_the_tests_0123456789";

/// Everything that a test of triggers needs.
pub(crate) struct Triggers {
    pub(crate) clock: HandClock,
    pub(crate) server: TestServer,
    pub(crate) sink: Sink,
    pub(crate) setup: Setup,
    directory: TempDir,
}

impl Triggers {
    pub(crate) async fn start() -> Triggers {
        Triggers::with(|_| ()).await
    }

    /// With other settings.
    pub(crate) async fn with(change: impl FnOnce(&mut Setup)) -> Triggers {
        let clock = HandClock::new();
        let sink = Sink::start().await;
        let mut setup = Setup::on(&clock);
        change(&mut setup);
        let triggers = Triggers::on(clock, sink, setup).await;
        let body = json!({ "secret": SECRET });
        let made = triggers.post("/admin/v1/tenants/~/secrets/default", &body).await;
        made.expect(201);
        triggers
    }

    /// Without a secret.
    pub(crate) async fn on(clock: HandClock, sink: Sink, setup: Setup) -> Triggers {
        let directory = tempfile::tempdir().unwrap();
        let server = setup.start_in(directory.path()).await;
        Triggers { clock, server, sink, setup, directory }
    }

    pub(crate) async fn restart(self) -> Triggers {
        self.server.stop().await;
        let server = self.setup.start_in(self.directory.path()).await;
        Triggers { server, ..self }
    }

    /// Cuts the server off in the middle of what it does, and starts it anew.
    pub(crate) async fn crash(self) -> Triggers {
        guarded("the engine to stop", self.server.engine.shutdown()).await;
        self.server.drop_all().await;
        let server = self.setup.start_in(self.directory.path()).await;
        Triggers { server, ..self }
    }

    pub(crate) async fn post(&self, target: &str, body: &Value) -> Answer {
        self.server.ask("POST", target, &[JSON], body.to_string().as_bytes()).await
    }

    /// The least that a trigger is, for the collection `orders`, with more fields.
    pub(crate) fn definition(&self, more: Value) -> Value {
        let mut body = json!({
            "collection": "orders",
            "events": ["create", "update", "delete"],
            "url": format!("{}/hook", self.sink.url()),
        });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    }

    /// Makes a trigger of this id, disabled.
    pub(crate) async fn create(&self, id: &str, more: Value) -> Value {
        let mut body = self.definition(more);
        body["triggerId"] = id.into();
        self.post(TRIGGERS, &body).await.expect(201).json()
    }

    /// Makes a trigger and enables it without a look at its endpoint.
    pub(crate) async fn enabled(&self, id: &str, more: Value) {
        self.create(id, more).await;
        self.enable(id).await;
    }

    pub(crate) async fn enable(&self, id: &str) {
        let body = json!({ "force": true, "reason": "a test" });
        self.act(id, "enable", &body).await.expect(200);
    }

    /// `POST …/{id}/{action}`
    pub(crate) async fn act(&self, id: &str, action: &str, body: &Value) -> Answer {
        self.post(&format!("{TRIGGERS}/default/{id}/{action}"), body).await
    }

    pub(crate) async fn patch(&self, id: &str, body: &Value) -> Answer {
        let target = format!("{TRIGGERS}/default/{id}");
        self.server.ask("PATCH", &target, &[JSON], body.to_string().as_bytes()).await
    }

    /// A trigger as it is shown, or a part of what is said of it.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.server.get(&format!("{TRIGGERS}/default/{path}")).await
    }

    pub(crate) async fn status(&self, id: &str) -> Value {
        self.get(&format!("{id}/status")).await.expect(200).json()
    }

    /// The next request to the endpoint.
    pub(crate) async fn called(&mut self) -> Call {
        self.sink.next().await
    }

    /// The next one, which is answered with success.
    pub(crate) async fn delivered(&mut self) -> Value {
        let call = self.called().await;
        let body = call.json();
        call.ok();
        body
    }

    pub(crate) fn now(&self) -> u64 {
        self.clock.now().0
    }

    /// Waits until a trigger is as it should be.
    pub(crate) async fn until(&self, id: &str, is: impl Fn(&Value) -> bool) -> Value {
        let look = async || Some(self.status(id).await).filter(|it| is(it));
        eventually("a trigger to be so", look).await
    }

    /// Waits until so many attempts have ended, and moves the time on by a pause.
    pub(crate) async fn to_next_attempt(&self, id: &str, attempts: u64, pause_ms: u64) {
        self.until(id, |it| it["attempts"] == attempts).await;
        self.clock.advance(pause_ms);
    }

    pub(crate) async fn dead_letters(&self, query: &str) -> Vec<Value> {
        let answer = self.server.get(&format!("/admin/v1/dlq{query}")).await.expect(200);
        answer.json()["deadLetters"].as_array().unwrap().clone()
    }

    /// Waits for so many dead letters.
    pub(crate) async fn letters(&self, count: usize) -> Vec<Value> {
        let look = async || Some(self.dead_letters("").await).filter(|it| it.len() == count);
        eventually("dead letters", look).await
    }

    /// Checks that the endpoint is not called: what comes next is what this change brings about.
    pub(crate) async fn only(&mut self, path: &str) -> Value {
        self.server.put_doc(path, json!({ "canary": self.now() })).await;
        let body = self.delivered().await;
        assert_eq!(body["path"], path, "somebody else was called first: {body}");
        body
    }
}

/// What signs a body, computed here.
pub(crate) fn tag(secret: &str, timestamp: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signed = [timestamp.as_bytes(), b".", body].concat();
    hmac::sign(&key, &signed).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The timestamp of a delivery's signature, and its values.
pub(crate) fn signatures(call: &Call) -> (String, Vec<String>) {
    let header = call.get("x-syntrix-signature");
    let (time, values) = header.split_once(",v1=").unwrap();
    let values = values.split(",v1=").map(str::to_owned).collect();
    (time.strip_prefix("t=").unwrap().to_owned(), values)
}
