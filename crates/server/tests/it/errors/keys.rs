//! What is refused to those who have no key, or one for something else.

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

pub(super) async fn refusals(seen: &mut Vec<Answer>) {
    let server = guarded_by_keys().start().await;
    let (_, user) = server.make_key("acme", &["user"]).await;
    let (_, operator) = server.make_key("acme", &["operator"]).await;
    let (user, operator) = (format!("Bearer {user}"), format!("Bearer {operator}"));
    let admin = format!("Bearer {ADMIN}");
    let keys = "/admin/v1/keys";
    let key = |tenant: &str, rest: &str| format!("{{\"tenant\":{tenant},{rest}}}");
    let user_of = |tenant: &str| key(tenant, "\"roles\":[\"user\"]");
    let bodies = [
        user_of("\"global\""),
        user_of("\"Acme\""),
        user_of("null"),
        key("\"acme\"", "\"roles\":[]"),
        key("\"acme\"", "\"roles\":[\"owner\"]"),
        key("\"acme\"", "\"roles\":[\"user\"],\"permissions\":[\"delete\"]"),
        "{\"roles\":[\"admin\"]}".to_owned(),
    ];
    let refused: &[(&str, &str, Headers<'_>, u16, &str)] = &[
        ("GET", "/s", &[], 401, "AUTH_REQUIRED"),
        ("GET", "/s", &by("Basic eDp5"), 401, "INVALID_AUTH_FORMAT"),
        ("GET", "/s", &by("Bearer unknown"), 401, "INVALID_API_KEY"),
        ("GET", "/s", &by(&operator), 403, "FORBIDDEN"),
        ("PUT", "/s", &by(&operator), 403, "FORBIDDEN"),
        ("GET", "/admin/v1/streams", &by(&user), 403, "FORBIDDEN"),
        ("GET", keys, &by(&operator), 403, "FORBIDDEN"),
        ("GET", "/_facts/team", &by(&user), 403, "FORBIDDEN"),
        ("POST", "/admin/v1/signing-keys/rotate", &by(&user), 403, "FORBIDDEN"),
        ("GET", "/s", &namespace(&user, "beta"), 403, "FORBIDDEN"),
        ("GET", "/s", &namespace(&admin, "no name"), 400, "INVALID_HEADER"),
        ("DELETE", "/admin/v1/keys/none", &by(&admin), 404, "KEY_NOT_FOUND"),
    ];
    for (method, target, headers, status, code) in refused {
        let answer = server.ask(method, target, headers, b"").await;
        assert_eq!((answer.status(), answer.code().as_str()), (*status, *code), "{answer}");
        let challenge = (*status == 401).then_some("Bearer");
        assert_eq!(answer.get("www-authenticate"), challenge, "{answer}");
        seen.push(answer);
    }
    let writer = key("\"acme\"", "\"roles\":[\"admin\"],\"permissions\":[\"write\"]");
    let writer = server.ask("POST", keys, &by(&admin), writer.as_bytes()).await.expect(201).json();
    let writer = format!("Bearer {}", writer["key"].as_str().unwrap());
    let refused: &[(&str, &str, &str)] = &[
        ("POST", keys, &user_of("\"acme\"")),
        ("GET", "/**?subscriptions", ""),
        ("PUT", "/a?subscription=a", "{}"),
    ];
    for (method, target, body) in refused {
        let answer = server.ask(method, target, &by(&writer), body.as_bytes()).await;
        assert_eq!((answer.status(), answer.code().as_str()), (403, "FORBIDDEN"), "{target}");
        seen.push(answer);
    }
    for body in &bodies {
        let answer = server.ask("POST", keys, &by(&admin), body.as_bytes()).await;
        assert_eq!((answer.status(), answer.code().as_str()), (400, "INVALID_REQUEST"), "{body}");
        seen.push(answer);
    }
    server.stop().await;
}

pub(super) async fn refusal_of_connections(seen: &mut Vec<Answer>) {
    let clock = HandClock::new();
    let setup =
        Setup { connections_max: 4, clock: std::sync::Arc::new(clock), ..guarded_by_keys() };
    let server = setup.start().await;
    let (_, key) = server.make_key("acme", &["user"]).await;
    let bearer = format!("Bearer {key}");
    server.ask("PUT", "/s", &by(&bearer), b"").await.expect(201);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut connection = server.connect().await;
        let target = "/s?offset=now&live=sse";
        connection.send(&request("GET", target, &by(&bearer), b"")).await;
        assert_eq!(connection.head("GET").await.unwrap().status, 200);
        waiting.push(connection);
    }
    let answer = server.ask("GET", "/s", &by(&bearer), b"").await.expect(503);
    assert_eq!(answer.code(), "TOO_MANY_CONNECTIONS");
    seen.push(answer);
}

fn by(value: &str) -> [(&str, &str); 1] {
    [("authorization", value)]
}

fn namespace<'a>(value: &'a str, name: &'a str) -> [(&'a str, &'a str); 2] {
    [("authorization", value), ("x-tenant-namespace", name)]
}
