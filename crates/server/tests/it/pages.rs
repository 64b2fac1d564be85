//! Lists of whatever length: a page has a limit in number and in bytes, and following it to the end
//! shows everything exactly once, also while entries come and go.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::harness::keys::{ADMIN, guarded_by_keys};
use crate::harness::*;

const TEXT: &str = "text/plain";
/// What a page holds at most.
const PAGE_BYTES: usize = 1 << 20;
/// What stands around its entries: where the next page begins, or all else that there is to say.
const FRAME_BYTES: usize = 4 << 10;

/// A page, and what of it identifies its entries.
struct Listed {
    ids: Vec<String>,
    next: Option<String>,
}

/// Reads a page, which is small enough.
async fn page(server: &TestServer, target: &str, list: &str, id: &str) -> Listed {
    let answer = server.get_as(ADMIN, target).await.expect(200);
    assert!(answer.body.len() <= PAGE_BYTES + FRAME_BYTES, "{} bytes", answer.body.len());
    let body = answer.json();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let ids = body[list].as_array().unwrap().iter().map(|it| text(&it[id]).unwrap()).collect();
    Listed { ids, next: text(&body["next"]) }
}

/// Follows a list to its end; the entries of each page.
async fn follow(server: &TestServer, target: &str, list: &str, id: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut after = String::new();
    loop {
        let found = page(server, &format!("{target}{after}"), list, id).await;
        pages.push(found.ids);
        assert!(pages.len() < 2_000, "a list without an end");
        match found.next {
            Some(next) => after = after_parameter(target, &next),
            None => return pages,
        }
    }
}

fn after_parameter(target: &str, next: &str) -> String {
    let sign = if target.contains('?') { '&' } else { '?' };
    format!("{sign}after={}", next.replace('%', "%25"))
}

/// Events of 250 kB that were given up; their ids, newest first.
async fn large_dead_letters(events: &mut Deliveries, id: &str, count: usize) -> Vec<String> {
    let text = "z".repeat(250_000);
    let mut ids = Vec::new();
    for _ in 0..count {
        let event = events.ingest(json!({ "type": "large", "text": text })).await;
        events.called().await.answer(500, "");
        events.until(id, |it| it["eventId"] == event && it["status"] == "dead").await;
        ids.insert(0, event);
        events.clock.advance(5);
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_dead_letters_ends_when_it_has_a_mebibyte() {
    let mut events = Deliveries::with(|setup| setup.segment_bytes = 64 << 20).await;
    let id = events.subscribe_with("large", json!({ "maxRetries": 1 })).await;
    let expected = large_dead_letters(&mut events, &id, 10).await;
    let target = format!("/subscriptions/{id}/dead-letters?limit=400");
    let pages = follow(&events.server, &target, "deadLetters", "eventId").await;
    let lengths: Vec<usize> = pages.iter().map(Vec::len).collect();
    assert_eq!(lengths, [4, 4, 2], "four of them have a million bytes");
    assert_eq!(pages.concat(), expected);
    let by_three = format!("/subscriptions/{id}/dead-letters?limit=3");
    let pages = follow(&events.server, &by_three, "deadLetters", "eventId").await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 1]);
    assert_eq!(pages.concat(), expected);

    // The last letter of the first page is retried and a new one comes: those between stay.
    let first = page(&events.server, &target, "deadLetters", "eventId").await;
    let letters = events.server.get(&target).await.expect(200).json();
    let last = letters["deadLetters"][3]["id"].as_str().unwrap();
    let retry = format!("/subscriptions/{id}/dead-letters/{last}/retry");
    events.post(&retry, &json!({})).await.expect(200);
    events.called().await.ok();
    large_dead_letters(&mut events, &id, 1).await;
    let after = after_parameter(&target, &first.next.unwrap());
    let rest = page(&events.server, &format!("{target}{after}"), "deadLetters", "eventId").await;
    assert_eq!(rest.ids, expected[4..8]);

    let other = events.subscribe("other").await;
    for after in ["x", "1-x", "1", "-", last] {
        for id in [&id, &other] {
            let target = format!("/subscriptions/{id}/dead-letters?after={after}");
            let answer = events.server.get(&target).await.expect(400);
            assert_eq!(answer.json()["code"], "INVALID_QUERY", "{after}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_hooks_goes_on_where_it_ended_also_when_hooks_come_and_go() {
    let events = Deliveries::start().await;
    let mut ids = Vec::new();
    for number in 0..9 {
        ids.insert(0, events.subscribe(&format!("a.{number}")).await);
        events.clock.advance(number % 2);
    }
    for limit in 1..=10 {
        let target = format!("/subscriptions/list?limit={limit}");
        let pages = follow(&events.server, &target, "subscriptions", "id").await;
        assert!(pages.iter().all(|page| page.len() <= limit));
        assert_eq!(pages.concat(), ids, "by {limit}");
    }
    let first = page(&events.server, "/subscriptions/list?limit=3", "subscriptions", "id").await;
    assert_eq!(first.ids, ids[..3]);
    events.subscribe("b").await;
    for gone in [&ids[2], &ids[4]] {
        events.server.delete(&format!("/subscriptions/{gone}")).await.expect(200);
    }
    let next = first.next.unwrap();
    let target = format!("/subscriptions/list?limit=1000&after={next}");
    let rest = page(&events.server, &target, "subscriptions", "id").await;
    assert_eq!(rest.ids, [&ids[3..4], &ids[5..]].concat());
    // A filter may leave out all of a page's end.
    let target = "/subscriptions/list?limit=1&patternPrefix=a.8";
    let pages = follow(&events.server, target, "subscriptions", "id").await;
    assert_eq!(pages.concat(), ids[..1]);
    for after in ["x", "1", "1-", "-1", "1-x", "1-1-1"] {
        let answer = events.server.get(&format!("/subscriptions/list?after={after}")).await;
        assert_eq!(answer.expect(400).json()["code"], "INVALID_QUERY", "{after}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_of_all_tenants_sees_each_hook_once() {
    let server = guarded_by_keys().start().await;
    let mut made = BTreeSet::new();
    for number in 0..21 {
        let (_, key) = server.make_key(&format!("t-{}", number % 7), &["user"]).await;
        let body = json!({ "workerId": "w", "pattern": format!("a.{number}"), "rpcMethod": "m" });
        let body = body.to_string();
        let target = "/subscriptions/subscribe";
        let answer = server.ask_as(&key, "POST", target, &[JSON], body.as_bytes()).await;
        made.insert(answer.expect(200).json()["subscriptionId"].as_str().unwrap().to_owned());
    }
    let whole = follow(&server, "/subscriptions/list", "subscriptions", "id").await.concat();
    for limit in [1, 4, 20, 21, 22] {
        let target = format!("/subscriptions/list?limit={limit}");
        let seen = follow(&server, &target, "subscriptions", "id").await.concat();
        assert_eq!(seen, whole, "by {limit}");
    }
    assert_eq!(whole.len(), 21);
    assert_eq!(whole.into_iter().collect::<BTreeSet<_>>(), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_match_come_page_by_page() {
    let events = Deliveries::start().await;
    let mut ids = Vec::new();
    for number in 0..9 {
        let more = json!({ "workerId": format!("w{number}") });
        ids.push(events.subscribe_with(["a.*", "**", "a.b"][number % 3], more).await);
    }
    events
        .post("/subscriptions/unsubscribe", &json!({ "subscriptionId": ids.remove(4) }))
        .await
        .expect(200);
    ids.reverse();
    for limit in 1..=9 {
        let target = format!("/subscriptions/match?eventType=a.b&limit={limit}");
        let pages = follow(&events.server, &target, "subscriptions", "id").await;
        assert!(pages.iter().all(|page| page.len() <= limit));
        assert_eq!(pages.concat(), ids, "by {limit}");
    }
    let target = "/subscriptions/match?eventType=a.b&limit=3";
    let first = page(&events.server, target, "subscriptions", "id").await;
    events.server.delete(&format!("/subscriptions/{}", ids[2])).await.expect(200);
    events.subscribe_with("a.*", json!({ "workerId": "late" })).await;
    let target = format!("/subscriptions/match?eventType=a.b&after={}", first.next.unwrap());
    let rest = page(&events.server, &target, "subscriptions", "id").await;
    assert_eq!(rest.ids, ids[3..]);
    for wrong in ["limit=0", "limit=1001", "limit=x", "after=x", "after=-1"] {
        let target = format!("/subscriptions/match?eventType=a.b&{wrong}");
        let answer = events.server.get(&target).await.expect(400);
        assert_eq!(answer.json()["code"], "INVALID_QUERY", "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_on_streams_come_page_by_page() {
    let server = Setup::default().start().await;
    let make = async |name: &str, pattern: &str| {
        let body = json!({ "webhook": "http://127.0.0.1:9/" }).to_string();
        let target = format!("{pattern}?subscription={name}");
        server.ask("PUT", &target, &[], body.as_bytes()).await.expect(201);
    };
    let mut names = Vec::new();
    for number in 0..9 {
        let name = format!("s{number}");
        make(&name, if number % 2 == 0 { "/a/*" } else { "/b/*" }).await;
        names.push(name);
    }
    for limit in 1..=10 {
        let target = format!("/**?subscriptions&limit={limit}");
        let pages = follow(&server, &target, "subscriptions", "subscription_id").await;
        assert!(pages.iter().all(|page| page.len() <= limit));
        assert_eq!(pages.concat(), names, "by {limit}");
    }
    let target = "/b/*?subscriptions&limit=2";
    let pages = follow(&server, target, "subscriptions", "subscription_id").await;
    assert_eq!(pages, [["s1", "s3"], ["s5", "s7"]]);
    let first =
        page(&server, "/**?subscriptions&limit=3", "subscriptions", "subscription_id").await;
    assert_eq!(first.next.as_deref(), Some("s2"));
    server.delete("/**?subscription=s2").await.expect(204);
    make("s25", "/a/*").await;
    make("s11", "/a/*").await;
    let target = "/**?subscriptions&after=s2";
    let rest = page(&server, target, "subscriptions", "subscription_id").await;
    assert_eq!(rest.ids, ["s25", "s3", "s4", "s5", "s6", "s7", "s8"]);
    for wrong in ["limit=0", "limit=1001", "limit=x"] {
        let answer = server.get(&format!("/**?subscriptions&{wrong}")).await.expect(400);
        assert_eq!(answer.code(), "INVALID_QUERY", "{wrong}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_with_long_names_fill_a_page_by_their_bytes() {
    let server = Setup { sync: false, ..Setup::default() }.start().await;
    let long = "n".repeat(1_900);
    let mut connection = server.connect().await;
    let mut names = Vec::new();
    for number in 0..700 {
        let name = format!("/{number:03}/{long}");
        let headers = [("content-type", TEXT)];
        connection.ask("PUT", &name, &headers, b"").await.expect(201);
        names.push(name);
    }
    let pages = follow(&server, "/admin/v1/streams", "streams", "path").await;
    assert_eq!(pages.len(), 2);
    assert_eq!(pages.concat(), names);
    // A consumer of each of them.
    let body = json!({ "webhook": "http://127.0.0.1:9/" }).to_string();
    server.ask("PUT", "/**?subscription=s", &[], body.as_bytes()).await.expect(201);
    let pages = follow(&server, "/admin/v1/consumers", "consumers", "primary_stream").await;
    assert!((3..=6).contains(&pages.len()), "{} pages", pages.len());
    assert_eq!(pages.concat(), names);
    // What shows all of them at once says that it does not.
    let asked = json!({ "type": "pull-wake", "pattern": "**", "wake_stream": "wake" });
    server.ds_put("p", &asked).await.expect(201);
    for number in 0..700 {
        let name = format!("/v1/stream/{number:03}/{long}");
        connection.ask("PUT", &name, &[JSON], b"[1]").await.expect(201);
    }
    let answer = server.get(&ds::at("p")).await.expect(200);
    assert!(answer.body.len() <= PAGE_BYTES + FRAME_BYTES, "{} bytes", answer.body.len());
    assert_eq!(answer.json()["streams_truncated"], true);
    let answer = server.get("/admin/v1/consumers/p").await.expect(200);
    assert!(answer.body.len() <= PAGE_BYTES + FRAME_BYTES, "{} bytes", answer.body.len());
    assert_eq!(answer.json()["more_streams"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_with_much_to_say_fill_a_page_by_their_bytes() {
    let server = guarded_by_keys().start().await;
    let scopes: Vec<String> =
        (0..64).map(|number| format!("{number:02}{}", "s".repeat(250))).collect();
    let body = json!({ "tenant": "acme", "roles": ["user"], "scopes": scopes });
    let mut made = BTreeSet::new();
    for _ in 0..80 {
        let key = server.post_key(ADMIN, &body).await.expect(201).json();
        made.insert(key["id"].as_str().unwrap().to_owned());
    }
    let pages = follow(&server, "/admin/v1/keys", "keys", "id").await;
    assert_eq!(pages.len(), 2);
    assert_eq!(pages.concat().len(), 80);
    assert_eq!(pages.concat().into_iter().collect::<BTreeSet<_>>(), made);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_consumers_shows_some_streams_of_each_and_how_many_there_are() {
    let mut endpoint = Responder::start(200, "{}").await;
    let server = Setup::default().start().await;
    let body = json!({ "webhook": endpoint.url }).to_string();
    server.ask("PUT", "/a?subscription=s", &[], body.as_bytes()).await.expect(201);
    server.create("/a", TEXT).await;
    server.append("/a", TEXT, b"1").await.expect(204);
    let wake = endpoint.next().await.json();
    let followed: Vec<String> = (0..40).map(|number| format!("/f/{number:02}")).collect();
    let token = format!("Bearer {}", wake["token"].as_str().unwrap());
    let report = json!({ "epoch": 1, "subscribe": followed }).to_string();
    let headers = [("authorization", token.as_str())];
    server.ask("POST", "/callback/s:%2Fa", &headers, report.as_bytes()).await.expect(200);
    let listed = server.get("/admin/v1/consumers").await.expect(200).json();
    let listed = &listed["consumers"][0];
    assert_eq!(listed["streams"].as_array().unwrap().len(), 20);
    assert_eq!((&listed["more_streams"], &listed["stream_count"]), (&json!(true), &json!(41)));
    assert_eq!(listed["pending"], true, "the first one has work");
    let shown = server.get("/admin/v1/consumers/s:%2Fa").await.expect(200).json();
    assert_eq!(shown["streams"].as_array().unwrap().len(), 41);
    assert_eq!((&shown["more_streams"], &shown["stream_count"]), (&json!(false), &json!(41)));
}

/// A connection whose client takes 64 KiB and then nothing more until it reads.
async fn narrow_connection(server: &TestServer) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask_for_page(server: &TestServer, target: &str) -> Response<Incoming> {
    let uri = format!("http://localhost{target}");
    let request = Request::builder().uri(uri).body(Empty::new()).unwrap();
    narrow_connection(server).await.send_request(request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_nobody_reads_keep_their_tenants_room_and_no_more() {
    let mut events = Deliveries::with(|setup| setup.segment_bytes = 64 << 20).await;
    let id = events.subscribe_with("large", json!({ "maxRetries": 1 })).await;
    large_dead_letters(&mut events, &id, 4).await;
    let target = format!("/subscriptions/{id}/dead-letters");
    let held = || events.server.engine.page_bytes();
    eventually("nothing to be on its way", async || (held() == 0).then_some(())).await;
    // Each has 1,000,000 bytes, and eight of them have the room of a tenant but for a page.
    let mut unread = Vec::new();
    for number in 1..=8 {
        let answer = guarded("a page", ask_for_page(&events.server, &target)).await;
        assert_eq!(answer.status(), 200);
        unread.push(answer);
        let room = number * 1_000_000..=number << 20;
        let whole = async || room.contains(&held()).then_some(());
        eventually("the pages to be counted", whole).await;
    }
    // The ninth waits for two seconds and is told to come back.
    let refused = events.clock.run_out(2_000, ask_for_page(&events.server, &target)).await;
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["retry-after"]),
        (503, &"1".parse().unwrap())
    );
    assert!(events.server.metric("reveille_page_bytes").await <= 8 << 20);
    // Who reads makes room.
    let first = unread.remove(0).into_body().collect().await.unwrap().to_bytes();
    assert!(first.len() > 1_000_000);
    let again = guarded("a page", ask_for_page(&events.server, &target)).await;
    assert_eq!(again.status(), 200);
    // Who hangs up as well.
    drop((unread, again));
    eventually("all room to be given back", async || (held() == 0).then_some(())).await;
}
