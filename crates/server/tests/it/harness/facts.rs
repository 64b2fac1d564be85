//! A server with keys whose time stands still, those who say and read facts, and their endpoints.

use reveille_core::Tenant;
use reveille_core::fact::wake::WakeTemplate;
use reveille_engine::deliveries::explain::{Reason, Rest};
use reveille_engine::doors::Clock;
use reveille_server::FactSettings;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::client::Answer;
use super::clock::HandClock;
use super::keys::{ADMIN, keys};
use super::server::{Setup, TestServer};
use super::sink::{Call, Sink};
use super::{eventually, guarded};

/// What a subscription has become whose access was revoked.
pub(crate) const CANCELLED: &str = "subscription_cancelled_access_revoked";

/// Everything that a test of facts needs.
pub(crate) struct Facts {
    pub(crate) clock: HandClock,
    pub(crate) server: TestServer,
    /// Where everybody has their webhooks who names no other.
    pub(crate) sink: Sink,
    pub(crate) setup: Setup,
    /// Who runs the tenant, and writes facts that are in no garden.
    pub(crate) admin: Party,
    directory: TempDir,
    /// An endpoint whose deliveries show that everything before them has happened.
    canary: Sink,
    canaries: u64,
}

/// Somebody with a key.
#[derive(Debug, Clone)]
pub(crate) struct Party {
    pub(crate) entity: String,
    pub(crate) key: String,
    pub(crate) key_id: String,
}

impl Facts {
    pub(crate) async fn start() -> Facts {
        Facts::with(|_| ()).await
    }

    /// One that wakes agents.
    pub(crate) async fn with_agents() -> Facts {
        Facts::with(|setup| {
            let wake_template = WakeTemplate::parse("/agents/{wake_agent_id}").ok();
            setup.facts = FactSettings { wake_template, ..FactSettings::default() };
        })
        .await
    }

    /// With other settings.
    pub(crate) async fn with(change: impl FnOnce(&mut Setup)) -> Facts {
        let clock = HandClock::new();
        let (sink, canary) = (Sink::start().await, Sink::polite().await);
        let timings = reveille_core::subscription::Timings::default();
        let mut setup = Setup { auth: keys(), timings, ..Setup::on(&clock) };
        change(&mut setup);
        let directory = tempfile::tempdir().unwrap();
        let server = setup.start_in(directory.path()).await;
        let admin = make_party(&server, "acme", "user:admin", &["admin"], &["*"]).await;
        Facts { clock, server, sink, setup, admin, directory, canary, canaries: 0 }
    }

    /// Stops the server in order and starts it anew.
    pub(crate) async fn restart(self) -> Facts {
        self.server.stop().await;
        let server = self.setup.start_in(self.directory.path()).await;
        Facts { server, ..self }
    }

    /// Cuts the server off from everything in the middle of what it does, and starts it anew.
    pub(crate) async fn crash(self) -> Facts {
        guarded("the engine to stop", self.server.engine.shutdown()).await;
        self.server.drop_all().await;
        let server = self.setup.start_in(self.directory.path()).await;
        Facts { server, ..self }
    }

    /// Somebody of the tenant who reads these scopes.
    pub(crate) async fn party(&self, name: &str, scopes: &[&str]) -> Party {
        make_party(&self.server, "acme", &format!("user:{name}"), &["user"], scopes).await
    }

    /// The same who may subscribe to everything.
    pub(crate) async fn subscriber(&self, name: &str, scopes: &[&str]) -> Party {
        let party = self.party(name, scopes).await;
        self.grant(&party, "*").await;
        party
    }

    pub(crate) async fn post(&self, by: &Party, target: &str, body: &Value) -> Answer {
        self.server.ask_as(&by.key, "POST", target, &[], body.to_string().as_bytes()).await
    }

    pub(crate) async fn get(&self, by: &Party, target: &str) -> Answer {
        self.server.get_as(&by.key, target).await
    }

    pub(crate) async fn delete(&self, by: &Party, target: &str) -> Answer {
        self.server.ask_as(&by.key, "DELETE", target, &[], b"").await
    }

    /// Issues a token to subscribe to an object; returns its id.
    pub(crate) async fn grant(&self, to: &Party, object: &str) -> String {
        text(&self.issue(to, json!({ "object": object })).await["token_id"])
    }

    /// Issues a token with other fields than that.
    pub(crate) async fn issue(&self, to: &Party, more: Value) -> Value {
        let mut body = json!({ "subject": to.entity, "verb": "subscribe", "object": "*" });
        merge(&mut body, more);
        let answer = self.post(&self.admin, "/v1/federation/capability-tokens", &body).await;
        answer.expect(201).json()
    }

    pub(crate) async fn revoke_token(&self, id: &str) {
        let target = format!("/v1/federation/capability-tokens/{id}/revoke");
        self.post(&self.admin, &target, &json!({ "reason": "left" })).await.expect(200);
    }

    /// Makes a garden whose only member is the admin.
    pub(crate) async fn garden(&self, slug: &str) {
        let body = json!({ "slug": slug, "name": slug, "scope": "company" });
        self.post(&self.admin, "/v1/gardens", &body).await.expect(201);
    }

    pub(crate) async fn join(&self, slug: &str, who: &Party, role: &str) {
        let body = json!({ "entity_uri": who.entity, "role": role });
        let target = format!("/v1/gardens/{slug}/members");
        self.post(&self.admin, &target, &body).await.expect(201);
    }

    pub(crate) async fn leave(&self, slug: &str, who: &Party) {
        let target = format!("/v1/gardens/{slug}/members/{}", who.entity);
        self.delete(&self.admin, &target).await.expect(204);
    }

    /// The admin says something of the company; returns the fact.
    pub(crate) async fn say(&self, more: Value) -> Value {
        self.post(&self.admin, "/v1/facts", &statement(more)).await.expect(201).json()
    }

    /// What somebody asks for who wants to be told of a target, at the sink.
    pub(crate) fn wish(&self, target: &str, more: Value) -> Value {
        let mut body =
            json!({ "target": target, "on_change": "webhook", "webhook_url": self.sink.url() });
        merge(&mut body, more);
        body
    }

    /// Makes a subscription; returns its id.
    pub(crate) async fn subscribe(&self, by: &Party, target: &str) -> String {
        self.subscribe_with(by, target, json!({})).await
    }

    pub(crate) async fn subscribe_with(&self, by: &Party, target: &str, more: Value) -> String {
        let wish = self.wish(target, more);
        text(&self.post(by, "/v1/subscriptions", &wish).await.expect(201).json()["id"])
    }

    /// A subscription as its owner sees it.
    pub(crate) async fn shown(&self, by: &Party, id: &str) -> Value {
        self.get(by, &format!("/v1/subscriptions/{id}")).await.expect(200).json()
    }

    /// Waits until a subscription is cancelled; returns it.
    pub(crate) async fn cancelled(&self, by: &Party, id: &str) -> Value {
        let look =
            async || Some(self.shown(by, id).await).filter(|it| !it["cancelled_at"].is_null());
        eventually("the subscription to be cancelled", look).await
    }

    /// Checks that a subscription is cancelled, by which check, and that nobody is called for it.
    pub(crate) async fn ended(&mut self, who: &Party, id: &str, by: &str) {
        let cancelled = self.cancelled(who, id).await;
        assert_eq!(
            (&cancelled["cancel_reason"], &cancelled["cancelled_by"]),
            (&json!(CANCELLED), &json!(by))
        );
        assert_eq!(cancelled["cancelled_at"], self.clock_ms());
        self.quiet(by).await;
    }

    /// The same, also after a crash, and that its owner still finds it. The test is over then.
    pub(crate) async fn ends(mut self, owner: &Party, id: &str, by: &str) {
        for is_over in [false, true] {
            self.ended(owner, id, by).await;
            let list = self.get(owner, "/v1/subscriptions").await.expect(200).json();
            let is_it = |it: &Value| it["id"] == id && it["cancelled_by"] == by;
            assert!(list["subscriptions"].as_array().unwrap().iter().any(is_it), "{list}");
            // What is left of it to replay says that it is over, and nothing else.
            let [left] = self.replay(owner, id).await.try_into().unwrap();
            let event = &left["event_id"];
            let expected = json!({
                "subscription_id": id, "event_id": event, "event_type": CANCELLED, "entity": null,
                "scope": null, "fact_id": null, "hlc": null, "payload": {}, "idempotency_key": event,
            });
            assert_eq!(left, expected);
            let after = format!("/v1/subscriptions/{id}/events?after={}", text(event));
            assert_eq!(self.get(owner, &after).await.expect(200).json()["events"], json!([]));
            if is_over {
                return self.server.stop().await;
            }
            self = self.crash().await;
        }
    }

    /// The events that a subscription has once more.
    pub(crate) async fn replay(&self, by: &Party, id: &str) -> Vec<Value> {
        let target = format!("/v1/subscriptions/{id}/events");
        let answer = self.get(by, &target).await.expect(200).json();
        answer["events"].as_array().unwrap().clone()
    }

    /// What the clock shows.
    pub(crate) fn clock_ms(&self) -> u64 {
        self.clock.now().0
    }

    /// The next request to the sink.
    pub(crate) async fn called(&mut self) -> Call {
        loop {
            let call = self.sink.next().await;
            // Some subscriptions are for everything.
            if call.json()["entity"] != "canary" {
                return call;
            }
            call.ok();
        }
    }

    /// Waits until so many attempts to deliver an event have failed and the next one waits for its
    /// time. Returns when that is.
    pub(crate) async fn until_failed(&self, event: &Value, attempts: usize) -> u64 {
        let tenant = Tenant::parse("acme").unwrap();
        let (hook, event) = (text(&event["subscription_id"]), text(&event["event_id"]));
        let look = async || {
            let explained = self.server.engine.explain_named(&tenant, &hook, &event).unwrap();
            let failed = explained.reasons.iter().filter(|it| matches!(it, Reason::Attempt(_)));
            match explained.reasons.last() {
                Some(Reason::Rest(Rest::Next { at, .. })) if failed.count() == attempts => {
                    Some(at.0)
                }
                _ => None,
            }
        };
        eventually("an attempt to fail", look).await
    }

    /// The same, and moves the time there. Returns how many seconds that was.
    pub(crate) async fn to_next_attempt(&self, event: &Value, attempts: usize) -> u64 {
        let pause = self.until_failed(event, attempts).await - self.clock_ms();
        self.clock.advance(pause);
        pause / 1_000
    }

    /// Checks that nobody is called at the sink: everything that was to happen by now has happened.
    pub(crate) async fn quiet(&mut self, why: &str) {
        let admin = self.admin.clone();
        if self.canaries == 0 {
            self.grant(&admin, "entity:canary").await;
            let url = json!({ "webhook_url": self.canary.url() });
            self.subscribe_with(&admin, "entity:canary", url).await;
        }
        for _ in 0..2 {
            self.canaries += 1;
            let value = json!({ "type": "number", "v": self.canaries });
            self.say(json!({ "entity": "canary", "relation": "sings", "value": value })).await;
            // One that was answered just before a crash comes again.
            while self.canary.next().await.json()["payload"]["value"]["v"] != self.canaries {}
        }
        while let Some(call) = self.sink.come() {
            // Some subscriptions are for everything.
            let canary = call.json()["entity"] == "canary";
            assert!(canary, "{why}, but an endpoint was called: {} {}", call.line, call.json());
            call.ok();
        }
    }
}

/// Makes a key that names somebody.
pub(crate) async fn make_party(
    server: &TestServer,
    tenant: &str,
    entity: &str,
    roles: &[&str],
    scopes: &[&str],
) -> Party {
    let body = json!({ "tenant": tenant, "roles": roles, "entity_uri": entity, "scopes": scopes });
    let made = server.post_key(ADMIN, &body).await.expect(201).json();
    Party { entity: entity.to_owned(), key: text(&made["key"]), key_id: text(&made["id"]) }
}

/// That Alice works at acme, or something else.
pub(crate) fn statement(more: Value) -> Value {
    let mut body = json!({ "entity": "user:alice", "relation": "works_at",
                           "value": { "type": "string", "v": "acme" }, "source": "agent:scribe",
                           "scope": "company" });
    merge(&mut body, more);
    body
}

fn merge(body: &mut Value, more: Value) {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
}

/// A text in an answer.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}
