//! Live queries and what their callers may see: rules by event and by caller, keys that end.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

const ROOMS: &str = "rooms?live=sse";

struct World {
    server: TestServer,
    /// Whom rules are not asked for.
    admin: String,
}

impl World {
    async fn start() -> World {
        World::with(guarded_by_keys()).await
    }

    async fn with(setup: Setup) -> World {
        let server = setup.start().await;
        let admin = key_of(&server, "admin", "user:admin").await.1;
        World { server, admin }
    }

    async fn user(&self, name: &str) -> String {
        key_of(&self.server, "user", &format!("user:{name}")).await.1
    }

    async fn put(&self, path: &str, document: Value) {
        let body = json!({ "doc": document }).to_string();
        let target = format!("/api/v1/{path}");
        let put = self.server.ask_as(&self.admin, "PUT", &target, &[JSON], body.as_bytes());
        put.await.expect(200);
    }

    async fn delete(&self, path: &str) {
        let target = format!("/api/v1/{path}");
        self.server.ask_as(&self.admin, "DELETE", &target, &[], b"").await.expect(204);
    }

    async fn rules(&self, matches: Value) {
        let body = json!({ "match": matches }).to_string();
        let target = "/admin/v1/tenants/acme/rules";
        self.server.ask_as(&self.admin, "PUT", target, &[JSON], body.as_bytes()).await.expect(200);
    }

    async fn no_rules(&self) {
        let target = "/admin/v1/tenants/acme/rules";
        self.server.ask_as(&self.admin, "DELETE", target, &[], b"").await.expect(204);
    }
}

/// The id of a key, and the key.
async fn key_of(server: &TestServer, role: &str, who: &str) -> (String, String) {
    let body = json!({ "tenant": "acme", "roles": [role], "entity_uri": who });
    let made = server.post_key(ADMIN, &body).await.expect(201).json();
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

fn owned(by: &str) -> Value {
    json!({ "owner": format!("user:{by}") })
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_sees_what_the_rules_let_them_see_event_by_event() {
    let world = World::start().await;
    let (ada, bob) = (world.user("ada").await, world.user("bob").await);
    world.put("rooms/a", owned("ada")).await;
    world.put("rooms/b", owned("bob")).await;
    world
        .rules(json!({ "rooms/{r}": { "allow":
            { "list": "request.auth.userId == resource.data.owner" } } }))
        .await;
    let mut of_ada = Picture::open_as(&world.server, &ada, ROOMS).await;
    let mut of_bob = Picture::open_as(&world.server, &bob, ROOMS).await;
    let mut of_admin = Picture::open_as(&world.server, &world.admin, ROOMS).await;
    assert_eq!(of_ada.ready().await.keys().collect::<Vec<_>>(), ["a"]);
    assert_eq!(of_bob.ready().await.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(of_admin.ready().await.len(), 2);
    // It changes hands: gone for one, there for the other, and neither sees the other's side.
    world.put("rooms/a", json!({ "owner": "user:bob", "secret": 1 })).await;
    let gone = of_ada.next().await;
    assert_eq!((gone.kind.as_str(), &gone.data), ("removed", &json!({ "id": "a" })));
    assert_eq!(of_bob.next().await.data["document"]["secret"], 1);
    // What she may not see, before or after, she is not told of; nor what has no owner at all.
    world.put("rooms/b", json!({ "owner": "user:bob", "n": 2 })).await;
    world.put("rooms/x", json!({})).await;
    world.delete("rooms/b").await;
    world.put("rooms/c", owned("ada")).await;
    let next = of_ada.next().await;
    assert_eq!(next.data["document"]["id"], "c");
    of_bob.until(6).await;
    assert_eq!(of_bob.documents.keys().collect::<Vec<_>>(), ["a"]);
    of_admin.until(7).await;
    assert_eq!(of_admin.documents.keys().collect::<Vec<_>>(), ["a", "c", "x"]);
    // She comes back: nothing else is asked, and nothing is sent again.
    world.put("rooms/c", json!({ "owner": "user:ada", "n": 1 })).await;
    of_ada.come_back(&world.server, ROOMS, Some(&ada)).await;
    of_ada.ready().await;
    assert_eq!((of_ada.field("n"), of_ada.resets), (vec![("c", &json!(1))], 0));
    world.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_change_are_a_new_beginning() {
    let world = World::start().await;
    let ada = world.user("ada").await;
    world.put("rooms/a", json!({ "open": true })).await;
    world.put("rooms/b", json!({ "open": false })).await;
    let mut live = Picture::open_as(&world.server, &ada, ROOMS).await;
    assert_eq!(live.ready().await.len(), 2, "without rules she may see everything");
    let mut of_admin = Picture::open_as(&world.server, &world.admin, ROOMS).await;
    of_admin.ready().await;
    world.rules(json!({ "rooms/{r}": { "allow": { "read": "resource.data.open" } } })).await;
    assert_eq!(live.next().await.kind, "reset");
    assert_eq!(live.ready().await.keys().collect::<Vec<_>>(), ["a"]);
    // The same while she was away, with and without a change after it.
    let away = live.last_id.clone();
    world.rules(json!({ "rooms/{r}": { "allow": { "read": "!resource.data.open" } } })).await;
    live.last_id.clone_from(&away);
    live.come_back(&world.server, ROOMS, Some(&ada)).await;
    assert_eq!(live.ready().await.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(live.resets, 2);
    world.put("rooms/c", json!({ "open": false })).await;
    live.until(3).await;
    world.no_rules().await;
    assert_eq!(live.next().await.kind, "reset");
    assert_eq!(live.ready().await.len(), 3);
    live.last_id = "2".to_owned();
    live.come_back(&world.server, ROOMS, Some(&ada)).await;
    assert_eq!(live.next().await.kind, "reset");
    assert_eq!(live.ready().await.len(), 3);
    // Nobody asked the rules for the admin.
    of_admin.until(3).await;
    assert_eq!(of_admin.resets, 0);
    world.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_rules_look_at_counts_as_well() {
    let clock = HandClock::new();
    let world = World::with(Setup { clock: Arc::new(clock.clone()), ..guarded_by_keys() }).await;
    let ada = world.user("ada").await;
    world.put("rooms/r", json!({ "members": ["user:ada"] })).await;
    world.put("rooms/r/messages/m", json!({ "n": 1 })).await;
    let member = "request.auth.userId in get('rooms/' + room).data.members";
    world.rules(json!({ "rooms/{room}/messages/{m}": { "allow": { "read": member } } })).await;
    let target = "rooms/r/messages?live=sse";
    let mut live = Picture::open_as(&world.server, &ada, target).await;
    assert_eq!(live.ready().await.len(), 1);
    // She is shown out: the messages are gone at once, although nobody wrote one.
    world.put("rooms/r", json!({ "members": [] })).await;
    assert_eq!(live.next().await.kind, "reset");
    assert_eq!(live.ready().await.len(), 0);
    world.put("rooms/r/messages/m", json!({ "n": 2 })).await;
    // And let in again, a moment later: nobody has all be sent anew with each write.
    world.put("rooms/r", json!({ "members": ["user:ada"], "n": 1 })).await;
    world.put("rooms/r", json!({ "members": ["user:ada"], "n": 2 })).await;
    clock.sleeper(5_000).await;
    world.put("rooms/r/messages/m", json!({ "n": 3 })).await;
    assert_eq!(live.next().await.kind, "change", "what comes is looked at as it is by now");
    clock.sleeper(5_000).await;
    clock.advance(5_000);
    assert_eq!(live.next().await.kind, "reset");
    live.ready().await;
    assert_eq!((live.field("n"), live.resets), (vec![("m", &json!(3))], 2));
    // While she is away nobody knows what the rules have looked at for her.
    world.put("rooms/r", json!({ "members": [] })).await;
    live.come_back(&world.server, target, Some(&ada)).await;
    assert_eq!(live.ready().await.len(), 0);
    world.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_ends_what_it_follows() {
    let world = World::start().await;
    let (id, key) = key_of(&world.server, "user", "user:ada").await;
    let mut live = Picture::open_as(&world.server, &key, ROOMS).await;
    live.ready().await;
    world.server.revoke(ADMIN, &id).await.expect(204);
    assert_eq!(live.try_next().await, None);
    world.server.get_as(&key, "/api/v1/rooms?live=sse").await.expect(401);
    let body = json!({ "tenant": "acme", "roles": ["user"], "permissions": ["write"] });
    let made = world.server.post_key(ADMIN, &body).await.expect(201).json();
    let writer = made["key"].as_str().unwrap();
    world.server.get_as(writer, "/api/v1/rooms?live=sse").await.expect(403);
    // Another tenant's changes are nobody else's.
    let other = json!({ "tenant": "beta", "roles": ["user"] });
    let other = world.server.post_key(ADMIN, &other).await.expect(201).json();
    let mut of_beta = Picture::open_as(&world.server, other["key"].as_str().unwrap(), ROOMS).await;
    world.put("rooms/a", json!({})).await;
    assert_eq!(of_beta.ready().await.len(), 0);
    world.server.stop().await;
}
