//! Keys: made, shown once, kept as a hash, and gone the moment they are revoked.

use std::fs;
use std::path::Path;

use reveille_core::key::KeyHash;
use reveille_server::Auth;
use serde_json::{Value, json};

use crate::harness::keys::{self, ADMIN, guarded_by_keys};
use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_shown_once_and_listed_without_itself() {
    let server = guarded_by_keys().start().await;
    let body = json!({
        "tenant": "acme", "roles": ["user", "operator"], "entity_uri": "stigmem://acme/agent/1",
        "permissions": ["read"], "scopes": ["team"], "description": "for people",
    });
    let mut made = server.post_key(ADMIN, &body).await.expect(201).json();
    let key = made["key"].take();
    assert!(key.as_str().is_some_and(|key| key.starts_with("rv_") && key.len() == 47), "{key}");
    made.as_object_mut().unwrap().remove("key");
    for (name, value) in body.as_object().unwrap() {
        let sorted = if name == "roles" { &json!(["operator", "user"]) } else { value };
        assert_eq!(&made[name], sorted, "{name}");
    }
    let listed = server.get_as(ADMIN, "/admin/v1/keys").await.expect(200);
    assert_eq!(listed.json(), json!({ "keys": [made] }));
    assert!(!listed.text().contains(key.as_str().unwrap()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_keys_go_on_where_the_last_one_ended() {
    let server = guarded_by_keys().start().await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(server.make_key("acme", &["user"]).await.0);
    }
    let ids_of = |page: &Value| -> Vec<String> {
        let keys = page["keys"].as_array().unwrap().iter();
        keys.map(|key| key["id"].as_str().unwrap().to_owned()).collect()
    };
    let first = server.get_as(ADMIN, "/admin/v1/keys?limit=2").await.expect(200).json();
    assert_eq!(ids_of(&first).len(), 2);
    let rest = format!("/admin/v1/keys?limit=2&after={}", first["next"].as_str().unwrap());
    let rest = server.get_as(ADMIN, &rest).await.expect(200).json();
    assert_eq!((ids_of(&rest).len(), &rest["next"]), (1, &Value::Null));
    let mut found = [ids_of(&first), ids_of(&rest)].concat();
    found.sort();
    ids.sort();
    assert_eq!(found, ids);
    server.stop().await;
}

/// Who may do what: rows are requests, columns are keys.
#[tokio::test(flavor = "multi_thread")]
async fn roles_and_permissions_are_kept_to() {
    let server = guarded_by_keys().start().await;
    let limited = |permission: &str| json!({ "tenant": "acme", "roles": ["user"], "permissions": [permission] });
    let mut keys = vec![ADMIN.to_owned()];
    for role in ["admin", "operator", "user"] {
        keys.push(server.make_key("acme", &[role]).await.1);
    }
    for permission in ["read", "write"] {
        let made = server.post_key(ADMIN, &limited(permission)).await.expect(201).json();
        keys.push(made["key"].as_str().unwrap().to_owned());
    }
    // Everywhere, admin, operator, user, reader, writer.
    let rows: &[(&str, &str, &[u8], [u16; 6])] = &[
        ("PUT", "/s", b"", [201, 201, 403, 200, 403, 200]),
        ("POST", "/s", b"x", [204, 204, 403, 204, 403, 204]),
        ("GET", "/s", b"", [200, 200, 403, 200, 200, 403]),
        ("HEAD", "/s", b"", [200, 200, 403, 200, 200, 403]),
        ("GET", "/**?subscriptions", b"", [200, 200, 200, 200, 200, 403]),
        ("GET", "/_x?subscription=w", b"", [404, 404, 404, 404, 404, 403]),
        ("PUT", "/s?subscription=w", b"{}", [400, 400, 403, 400, 403, 403]),
        ("DELETE", "/_x?subscription=w", b"", [204, 204, 403, 204, 403, 204]),
        ("GET", "/subscriptions/list", b"", [200, 200, 200, 200, 200, 403]),
        ("POST", "/subscriptions/subscribe", b"{}", [400, 400, 403, 400, 403, 403]),
        ("GET", "/v1/stream/__ds/subscriptions/p", b"", [404, 404, 404, 404, 404, 403]),
        ("PUT", "/v1/stream/__ds/subscriptions/p", b"{}", [400, 400, 403, 400, 403, 403]),
        ("GET", "/_events/acme", b"", [404, 404, 403, 404, 404, 403]),
        ("POST", "/_events/acme", b"x", [403; 6]),
        ("GET", "/_system/events", b"", [404, 404, 404, 403, 403, 403]),
        ("GET", "/_facts/team", b"", [404, 404, 403, 403, 403, 403]),
        ("PUT", "/_system/*?subscription=w", b"{}", [400, 400, 403, 403, 403, 403]),
        ("GET", "/admin/v1/streams", b"", [200, 200, 200, 403, 403, 403]),
        ("GET", "/admin/v1/consumers", b"", [200, 200, 200, 403, 403, 403]),
        ("GET", "/metrics", b"", [200, 200, 200, 403, 403, 403]),
        ("GET", "/admin/v1/keys", b"", [200, 200, 403, 403, 403, 403]),
        ("POST", "/admin/v1/signing-keys/rotate", b"", [200, 403, 403, 403, 403, 403]),
        ("POST", "/admin/v1/tokens/system", b"{}", [200, 200, 403, 403, 403, 403]),
        ("POST", "/api/v1/trigger/get", b"{}", [403; 6]),
        ("GET", "/admin/v1/other", b"", [404; 6]),
        ("DELETE", "/s", b"", [204, 204, 403, 404, 403, 404]),
    ];
    for (method, target, body, expected) in rows {
        for (key, expected) in keys.iter().zip(expected) {
            let answer = server.ask_as(key, method, target, &[TEXT], body).await;
            assert_eq!(answer.status(), *expected, "{method} {target} {answer}");
        }
    }
    // What may not be read may not be copied either.
    let fork = [("stream-forked-from", "/s")];
    let answer = server.ask_as(&keys[5], "PUT", "/copy", &fork, b"").await.expect(403);
    assert_eq!(answer.code(), "FORBIDDEN");
    server.ask_as(&keys[1], "PUT", "/copy", &fork, b"").await.expect(404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admins_of_a_tenant_manage_its_keys_alone() {
    let server = guarded_by_keys().start().await;
    let (_, admin) = server.make_key("acme", &["admin"]).await;
    let (other, _) = server.make_key("beta", &["user"]).await;
    let all = json!({ "tenant": null, "roles": ["admin"] });
    let almighty = server.post_key(ADMIN, &all).await.expect(201).json();
    let mine = json!({ "tenant": "acme", "roles": ["user"] });
    let mine = server.post_key(&admin, &mine).await.expect(201).json();
    for body in [json!({ "tenant": "beta", "roles": ["user"] }), all] {
        assert_eq!(server.post_key(&admin, &body).await.expect(403).code(), "FORBIDDEN");
    }
    let listed = server.get_as(&admin, "/admin/v1/keys").await.expect(200).json();
    let listed = listed["keys"].as_array().unwrap();
    assert!(listed.len() == 2 && listed.iter().all(|key| key["tenant"] == "acme"), "{listed:?}");
    for id in [other.as_str(), almighty["id"].as_str().unwrap(), "none"] {
        assert_eq!(server.revoke(&admin, id).await.expect(404).code(), "KEY_NOT_FOUND");
    }
    server.revoke(&admin, mine["id"].as_str().unwrap()).await.expect(204);
    // The admin of all tenants sees them all, or those of the tenant that it names.
    let almighty = almighty["key"].as_str().unwrap();
    let count = async |headers: Headers<'_>| {
        let answer = server.ask_as(almighty, "GET", "/admin/v1/keys", headers, b"").await;
        answer.expect(200).json()["keys"].as_array().unwrap().len()
    };
    assert_eq!(count(&[]).await, 3);
    assert_eq!(count(&[("x-tenant-namespace", "beta")]).await, 1);
    assert_eq!(count(&[("x-tenant-namespace", "nobodys")]).await, 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_of_all_tenants_acts_inside_one_if_it_says_so() {
    let server = guarded_by_keys().start().await;
    let (_, user) = server.make_key("acme", &["user"]).await;
    let acme = ("x-tenant-namespace", "acme");
    server.ask_as(ADMIN, "PUT", "/s", &[TEXT, acme], b"acme").await.expect(201);
    server.ask_as(ADMIN, "PUT", "/s", &[TEXT], b"default").await.expect(201);
    assert_eq!(server.get_as(&user, "/s").await.expect(200).text(), "acme");
    assert_eq!(server.get_as(ADMIN, "/s").await.expect(200).text(), "default");
    let rotate = server.ask_as(ADMIN, "POST", "/admin/v1/signing-keys/rotate", &[acme], b"").await;
    rotate.expect(403);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_keys_everybody_is_the_admin_of_the_default_tenant() {
    let server = Setup::default().start().await;
    let named = |name| [TEXT, ("x-tenant-namespace", name)];
    server.ask("PUT", "/s", &named("default"), b"x").await.expect(201);
    server.ask("PUT", "/s", &named("acme"), b"x").await.expect(403);
    // A header that means nothing here does no harm.
    let answer = server.ask("GET", "/s", &[("authorization", "Bearer x")], b"").await;
    assert_eq!(answer.expect(200).text(), "x");
    let post = async |tenant: &str| {
        let body = json!({ "tenant": tenant, "roles": ["user"] }).to_string();
        server.ask("POST", "/admin/v1/keys", &[], body.as_bytes()).await
    };
    post("default").await.expect(201);
    post("acme").await.expect(403);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_key_lets_nobody_in_from_then_on() {
    let directory = tempfile::tempdir().unwrap();
    let setup = guarded_by_keys();
    let server = setup.start_in(directory.path()).await;
    let (id, key) = server.make_key("acme", &["user"]).await;
    let (_, kept) = server.make_key("acme", &["user"]).await;
    server.ask_as(&key, "PUT", "/s", &[TEXT], b"one").await.expect(201);
    server.revoke(ADMIN, &id).await.expect(204);
    assert_eq!(server.get_as(&key, "/s").await.expect(401).code(), "INVALID_API_KEY");
    server.revoke(ADMIN, &id).await.expect(404);
    // Nothing is tidied up, as after a kill.
    guarded("the engine to stop", server.engine.shutdown()).await;
    server.drop_all().await;
    let server = setup.start_in(directory.path()).await;
    server.get_as(&key, "/s").await.expect(401);
    assert_eq!(server.get_as(&kept, "/s").await.expect(200).text(), "one");
    server.stop().await;
    for text in [&key, &kept, ADMIN] {
        assert!(!holds(directory.path(), text.as_bytes()), "a key is on the disk");
    }
    let hash = KeyHash::of(&kept).unwrap();
    assert!(holds(directory.path(), &hash.0), "the test looks where keys are kept");
}

/// Whether a file below the directory has these bytes in it.
fn holds(directory: &Path, bytes: &[u8]) -> bool {
    fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, bytes);
        }
        fs::read(&path).unwrap().windows(bytes.len()).any(|window| window == bytes)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_listens_is_cut_off_when_the_key_is_revoked() {
    let server = guarded_by_keys().start().await;
    let (id, key) = server.make_key("acme", &["user"]).await;
    let (_, writer) = server.make_key("acme", &["user"]).await;
    server.ask_as(&writer, "PUT", "/s", &[TEXT], b"before").await.expect(201);
    let bearer = format!("Bearer {key}");
    let mut listening = Vec::new();
    for target in ["/s?offset=-1&live=sse", "/s?offset=now&live=sse"] {
        let mut connection = server.connect().await;
        connection.send(&request("GET", target, &[("authorization", &bearer)], b"")).await;
        assert_eq!(connection.head("GET").await.unwrap().status, 200);
        // The first piece says where the reader stands: from now on it waits.
        let Piece::Bytes(_) = connection.piece().await else { panic!("nothing came") };
        listening.push(connection);
    }
    server.revoke(ADMIN, &id).await.expect(204);
    server.ask_as(&writer, "POST", "/s", &[TEXT], b"after").await.expect(204);
    for mut connection in listening {
        while let Piece::Bytes(bytes) = connection.piece().await {
            assert!(!String::from_utf8_lossy(&bytes).contains("after"));
        }
    }
    server.stop().await;
}

/// One tenant's keys are not another's to use up.
#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_has_only_so_many_keys() {
    let server = Setup {
        quotas: reveille_engine::quota::Quotas { keys: 2, ..Default::default() },
        ..guarded_by_keys()
    }
    .start()
    .await;
    let (_, admin) = server.make_key("acme", &["admin"]).await;
    let body = |tenant: &str| json!({ "tenant": tenant, "roles": ["user"] });
    let made = server.post_key(&admin, &body("acme")).await.expect(201).json();
    let answer = server.post_key(&admin, &body("acme")).await.expect(403);
    assert!(answer.text().contains("--max-keys") && answer.text().contains('2'), "{answer}");
    server.post_key(ADMIN, &body("acme")).await.expect(403);
    for _ in 0..2 {
        server.post_key(ADMIN, &body("beta")).await.expect(201);
    }
    server.revoke(&admin, made["id"].as_str().unwrap()).await.expect(204);
    server.post_key(&admin, &body("acme")).await.expect(201);
    server.stop().await;
}

/// Nothing has to happen to the stream: the clock stands still, and nobody writes.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_listens_in_vain_is_cut_off_at_once_too() {
    let clock = HandClock::new();
    let server = Setup { auth: keys::keys(), ..Setup::on(&clock) }.start().await;
    let (id, key) = server.make_key("acme", &["user"]).await;
    let (_, kept) = server.make_key("acme", &["user"]).await;
    server.ask_as(&kept, "PUT", "/s", &[TEXT], b"before").await.expect(201);
    let listen = async |key: &str, target: &str| {
        let bearer = format!("Bearer {key}");
        let mut connection = server.connect().await;
        connection.send(&request("GET", target, &[("authorization", &bearer)], b"")).await;
        connection
    };
    let (sse, poll) = ("/s?offset=now&live=sse", "/s?offset=now&live=long-poll");
    let mut reader = listen(&key, sse).await;
    let mut other = listen(&kept, sse).await;
    for connection in [&mut reader, &mut other] {
        assert_eq!(connection.head("GET").await.unwrap().status, 200);
        let Piece::Bytes(_) = connection.piece().await else { panic!("nothing came") };
    }
    let mut poller = listen(&key, poll).await;
    let mut polling = listen(&kept, poll).await;
    clock.sleepers(LONG_POLL_MS, 2).await;
    server.revoke(ADMIN, &id).await.expect(204);
    assert_eq!(reader.piece().await, Piece::End);
    assert_eq!(poller.answer("GET").await.expect(401).code(), "INVALID_API_KEY");
    // The others hear what comes.
    server.ask_as(&kept, "POST", "/s", &[TEXT], b"after").await.expect(204);
    let Piece::Bytes(bytes) = other.piece().await else { panic!("nothing came") };
    assert!(String::from_utf8_lossy(&bytes).contains("after"));
    assert_eq!(polling.answer("GET").await.expect(200).text(), "after");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_can_be_for_everybody() {
    let auth = Auth::Keys { admin_key: None, metrics_open: true };
    let server = Setup { auth, ..Setup::default() }.start().await;
    server.get("/metrics").await.expect(200);
    server.get("/s").await.expect(401);
    server.get_as(ADMIN, "/s").await.expect(401);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_not_made_while_the_disk_is_full_but_can_be_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let server = guarded_by_keys().start_in(directory.path()).await;
    let (id, key) = server.make_key("acme", &["user"]).await;
    server.stop().await;
    let full = Setup { min_free_bytes: u64::MAX, ..guarded_by_keys() };
    let server = full.start_in(directory.path()).await;
    let body = json!({ "tenant": "acme", "roles": ["user"] });
    assert_eq!(server.post_key(ADMIN, &body).await.expect(507).code(), "DISK_FULL");
    assert_eq!(server.get_as(ADMIN, "/admin/v1/keys").await.json()["keys"][0]["id"], id);
    server.get_as(&key, "/s").await.expect(404);
    server.revoke(ADMIN, &id).await.expect(204);
    server.get_as(&key, "/s").await.expect(401);
    server.stop().await;
}
