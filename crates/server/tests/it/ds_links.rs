//! Which streams a subscription under `__ds` is for, and from where on.

use serde_json::json;

use crate::harness::ds::at;
use crate::harness::*;

const ZERO: &str = "0000000000000000_0000000000000000";
const NOTHING: &str = "-1";
const URL: &str = "http://127.0.0.1:9/hook";

fn link(path: &str, kind: &str, acked: &str) -> (String, String, String) {
    (path.to_owned(), kind.to_owned(), acked.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_streams_that_are_there_are_linked_at_their_tail() {
    let server = Setup::default().start().await;
    let a = server.ds_stream("events/a").await;
    let b = server.ds_stream("named/b").await;
    server.ds_stream("other/c").await;
    server.create("/events/outside-the-root", "application/json").await;
    let asked = json!({
        "type": "webhook", "pattern": "events/*", "streams": ["named/b", "named/none"],
        "webhook": { "url": URL },
    });
    server.ds_put("s", &asked).await.expect(201);
    let links = [
        link("events/a", "glob", &a),
        link("named/b", "explicit", &b),
        link("named/none", "explicit", ZERO),
    ];
    assert_eq!(server.ds_links("s").await, links);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_stream_first_seen_at_an_append_is_linked_at_nothing_and_wakes() {
    let mut endpoint = Endpoint::open().await;
    let server = Setup::default().start().await;
    server.ds_webhook("s", "events/**", &endpoint.url).await;
    // One that is empty wakes nobody, and is not linked yet.
    server.create("/v1/stream/events/a/b", "application/json").await;
    assert_eq!(server.ds_links("s").await, []);
    let tail = server.ds_append("events/a/b").await;
    let wake = endpoint.call().await.json();
    let stream = json!({
        "path": "events/a/b", "link_type": "glob", "acked_offset": NOTHING, "tail_offset": tail,
        "has_pending": true,
    });
    assert_eq!(wake["streams"], json!([stream]));
    assert_eq!(wake["generation"], 1);
    assert_eq!(server.ds_links("s").await, [link("events/a/b", "glob", NOTHING)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_an_older_stream_that_grows_announces_only_what_is_new() {
    let mut endpoint = Endpoint::open().await;
    let server = Setup::default().start().await;
    let before = server.ds_stream("events/a").await;
    server.ds_webhook("s", "events/*", &endpoint.url).await;
    server.ds_append("events/a").await;
    let wake = endpoint.call().await.json();
    assert_eq!(wake["streams"][0]["acked_offset"], before);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_naming_a_stream_beats_matching_it_and_naming_it_no_longer_leaves_the_match() {
    let server = Setup::default().start().await;
    let a = server.ds_stream("events/a").await;
    let b = server.ds_stream("named/b").await;
    server.ds_webhook("s", "events/*", URL).await;
    let names = json!({ "streams": ["events/a", "named/b", "named/none"] });
    server.ds_post("s/streams", None, &names).await.expect(204);
    let all = [
        link("events/a", "explicit", &a),
        link("named/b", "explicit", &b),
        link("named/none", "explicit", ZERO),
    ];
    assert_eq!(server.ds_links("s").await, all);
    server.ds_post("s/streams", None, &names).await.expect(204);
    assert_eq!(server.ds_links("s").await, all);
    // A path with encoded slashes, one with plain ones, and one that was never named.
    server.delete(&at("s/streams/events%2Fa")).await.expect(204);
    server.delete(&at("s/streams/named/b")).await.expect(204);
    server.delete(&at("s/streams/named%2Fx")).await.expect(204);
    let left = [link("events/a", "glob", &a), link("named/none", "explicit", ZERO)];
    assert_eq!(server.ds_links("s").await, left);
    let answer = server.delete(&at("s/streams/a%20b")).await.expect(400);
    assert_eq!(answer.code(), "INVALID_REQUEST");
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_stream_that_is_named_no_longer_wakes_nobody() {
    let mut endpoint = Endpoint::open().await;
    let server = Setup::default().start().await;
    let asked = json!({
        "type": "webhook", "streams": ["a", "b"], "webhook": { "url": endpoint.url },
    });
    server.ds_put("s", &asked).await.expect(201);
    server.delete(&at("s/streams/a")).await.expect(204);
    server.ds_stream("a").await;
    let tail = server.ds_stream("b").await;
    let wake = endpoint.call().await.json();
    let paths: Vec<&str> =
        wake["streams"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["b"]);
    assert_eq!(wake["streams"][0]["link_type"], "explicit");
    assert_eq!(wake["streams"][0]["acked_offset"], ZERO);
    assert_eq!(wake["streams"][0]["tail_offset"], tail);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_stream_that_is_made_again_begins_anew_although_the_one_before_was_not_done() {
    // The mark that the first stream's backlog left was once taken for the second one's: what it
    // began with was announced to nobody.
    let mut endpoint = Endpoint::open().await;
    let server = Setup::default().start().await;
    let asked = json!({
        "type": "webhook", "pattern": "events/*", "streams": ["named"],
        "webhook": { "url": endpoint.url },
    });
    server.ds_put("s", &asked).await.expect(201);
    for path in ["named", "events/a"] {
        server.ds_stream(path).await;
        let call = endpoint.call().await;
        let wake = call.json();
        call.answer(200, "{}");
        server.delete(&format!("/v1/stream/{path}")).await.expect(204);
        let tail = server.ds_stream(path).await;
        let report = ds::report(&wake, &[], true);
        let answer = server.ds_post("s/callback", Some(ds::token(&wake)), &report).await;
        assert_eq!(answer.expect(200).json()["next_wake"], true, "{path}");
        let call = endpoint.call().await;
        let wake = call.json();
        call.answer(200, "{}");
        assert_eq!(wake["streams"][0]["acked_offset"], NOTHING, "{path}");
        let report = ds::report(&wake, &[(path, &tail)], true);
        let answer = server.ds_post("s/callback", Some(ds::token(&wake)), &report).await;
        assert_eq!(answer.expect(200).json()["next_wake"], false, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_a_long_list_of_streams_is_cut_and_says_so() {
    let server = Setup { sync: false, ..Setup::default() }.start().await;
    let mut connection = server.connect().await;
    for number in 0..1_001 {
        let path = format!("/v1/stream/many/{number:04}");
        connection.ask("PUT", &path, &[("content-type", "text/plain")], b"").await.expect(201);
    }
    server.ds_webhook("all", "many/*", URL).await;
    let body = server.ds_get("all").await;
    assert_eq!(body["streams"].as_array().unwrap().len(), 1_000);
    assert_eq!(body["streams_truncated"], true);

    server.delete("/v1/stream/many/0500").await.expect(204);
    let body = server.ds_get("all").await;
    assert_eq!(body["streams"].as_array().unwrap().len(), 1_000);
    assert_eq!(body.get("streams_truncated"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn ds_however_many_streams_have_work_all_of_them_are_told_until_they_are_done() {
    // A few marks are kept with their consumer, many by keys of their own, and back again.
    let mut endpoint = Endpoint::open().await;
    let server = Setup::default().start().await;
    let asked =
        json!({ "type": "webhook", "pattern": "events/*", "webhook": { "url": endpoint.url } });
    server.ds_put("s", &asked).await.expect(201);
    let paths: Vec<String> = (0..7).map(|number| format!("events/{number}")).collect();
    let mut tails = vec![server.ds_stream(&paths[0]).await];
    let mut call = endpoint.call().await;
    for path in &paths[1..] {
        tails.push(server.ds_stream(path).await);
    }
    let both: Vec<(&str, &str)> =
        paths.iter().map(String::as_str).zip(tails.iter().map(String::as_str)).collect();
    for (told, done) in [(0..1, 0..0), (0..7, 0..5), (5..7, 5..6), (6..7, 6..7)] {
        let wake = call.json();
        call.answer(200, "{}");
        let streams = wake["streams"].as_array().unwrap();
        let named: Vec<&str> = streams.iter().map(|it| it["path"].as_str().unwrap()).collect();
        assert_eq!(named, paths[told].iter().collect::<Vec<_>>());
        let last = done.end == paths.len();
        let report = ds::report(&wake, &both[done], true);
        let answer = server.ds_post("s/callback", Some(ds::token(&wake)), &report).await;
        assert_eq!(answer.expect(200).json()["next_wake"], !last);
        if last {
            return;
        }
        call = endpoint.call().await;
    }
}
