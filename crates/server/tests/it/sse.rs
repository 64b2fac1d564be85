//! Event streams: what was there, then what comes, each followed by where to go on.

use tokio::task::JoinSet;

use crate::harness::*;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const CLOSE: (&str, &str) = ("stream-closed", "true");

fn offset(position: u64) -> String {
    format!("0000000000000000_{position:016}")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_stream_greets_and_waits() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.create("/s", "text/plain").await;
    for from in ["-1", "now", "0_0"] {
        let mut events = Events::open(&server, &format!("/s?offset={from}&live=sse")).await;
        assert_eq!(events.head.get("cache-control"), Some("no-cache"));
        assert_eq!(events.head.get("content-length"), None);
        assert_eq!(events.head.get("content-encoding"), None);
        let control = events.control().await;
        assert_eq!((control.next_offset, control.up_to_date), (offset(0), true));
        assert!(control.cursor.is_some() && !control.closed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn line_ends_of_every_kind_stay_within_their_event() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    let nasty =
        "a\r\nb\rc\nd\n\n\r\r\r\n\nevent: control\ndata:{\"streamClosed\":true}\r\n\r\n: x\n";
    let plain = nasty.replace("\r\n", "\n").replace('\r', "\n");
    // Live, and then to one who comes later.
    let mut live = Events::open(&server, "/s?offset=now&live=sse").await;
    live.control().await;
    server.append("/s", "text/plain", nasty.as_bytes()).await.expect(204);
    let mut later = Events::open(&server, "/s?offset=-1&live=sse").await;
    for events in [&mut live, &mut later] {
        let (data, control) = events.data().await;
        assert_eq!(data, plain);
        assert_eq!(control.next_offset, offset(nasty.len() as u64));
        assert!(control.up_to_date && !control.closed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn json_is_arrays_and_binary_is_base64() {
    let server = Setup::default().start().await;
    server.create("/j", "application/json").await;
    server.append("/j", "application/json", b"[1,{\"a\":2}]").await.expect(204);
    let mut events = Events::open(&server, "/j?offset=-1&live=sse").await;
    assert_eq!(events.head.get("stream-sse-data-encoding"), None);
    assert_eq!(events.data().await.0, "[1,{\"a\":2}]");
    server.append("/j", "application/json", b"\"x\\n\"").await.expect(204);
    assert_eq!(events.data().await.0, "[\"x\\n\"]");

    server.create("/b", "application/x-thing").await;
    server.append("/b", "application/x-thing", &[0, 1, 255, 10]).await.expect(204);
    let mut events = Events::open(&server, "/b?offset=-1&live=sse").await;
    assert_eq!(events.head.get("stream-sse-data-encoding"), Some("base64"));
    assert_eq!(events.data().await.0, "AAH/Cg==");
    server.append("/b", "application/x-thing", &[13]).await.expect(204);
    assert_eq!(events.data().await.0, "DQ==");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_reaches_all_of_fifty_readers() {
    let server = Setup::default().start().await;
    server.create("/s", "text/plain").await;
    let mut readers = Vec::new();
    for _ in 0..50 {
        let mut events = Events::open(&server, "/s?offset=now&live=sse").await;
        events.control().await;
        readers.push(events);
    }
    assert_eq!(server.metric("reveille_live_readers").await, 50);
    server.append("/s", "text/plain", b"one").await.expect(204);
    server.ask("POST", "/s", &[TEXT, CLOSE], b"two").await.expect(204);
    let mut all = JoinSet::new();
    for mut events in readers {
        all.spawn(async move {
            let mut seen = String::new();
            loop {
                let (data, control) = events.data().await;
                seen.push_str(&data);
                assert_eq!(control.next_offset, offset(seen.len() as u64));
                assert!(control.up_to_date);
                if control.closed {
                    assert!(control.cursor.is_none());
                    assert_eq!(events.next().await, None, "the stream ends in order");
                    return seen;
                }
            }
        });
    }
    assert!(all.join_all().await.iter().all(|seen| seen == "onetwo"));
    eventually("nobody to be counted", async || {
        (server.metric("reveille_live_readers").await == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_that_closes_is_heard_before_the_end() {
    let server = Setup::default().start().await;
    for (number, body) in ["last", ""].into_iter().enumerate() {
        let path = format!("/s{number}");
        server.create(&path, "text/plain").await;
        server.append(&path, "text/plain", b"first").await.expect(204);
        let mut events = Events::open(&server, &format!("{path}?offset=-1&live=sse")).await;
        assert_eq!(events.data().await.0, "first");
        server.ask("POST", &path, &[TEXT, CLOSE], body.as_bytes()).await.expect(204);
        let control = if body.is_empty() {
            events.control().await
        } else {
            let (data, control) = events.data().await;
            assert_eq!(data, body);
            control
        };
        assert!(control.closed && control.up_to_date && control.cursor.is_none());
        assert_eq!(events.next().await, None);
        // One who comes when all is over gets the same.
        let mut events = Events::open(&server, &format!("{path}?offset=-1&live=sse")).await;
        let (data, control) = events.data().await;
        assert_eq!((data, control.closed), (format!("first{body}"), true));
        assert_eq!(events.next().await, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_stream_is_the_end_of_its_events() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.ask("PUT", "/deleted", &[TEXT], b"").await.expect(201);
    server.ask("PUT", "/expired", &[TEXT, ("stream-ttl", "30")], b"").await.expect(201);
    server.ask("PUT", "/forked", &[TEXT], b"").await.expect(201);
    server.ask("PUT", "/fork", &[("stream-forked-from", "/forked")], b"").await.expect(201);
    let mut events = Vec::new();
    for path in ["/deleted", "/expired", "/forked"] {
        let mut one = Events::open(&server, &format!("{path}?offset=-1&live=sse")).await;
        one.control().await;
        events.push(one);
    }
    server.delete("/deleted").await.expect(204);
    server.delete("/forked").await.expect(204);
    clock.advance(30_000);
    for mut one in events {
        assert_eq!(one.next().await, None, "it ends in order");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_after_a_minute_and_the_next_goes_on() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.create("/s", "text/plain").await;
    let mut events = Events::open(&server, "/s?offset=-1&live=sse").await;
    let greeted = events.control().await;
    clock.advance(59_999);
    server.append("/s", "text/plain", b"one").await.expect(204);
    let (data, control) = events.data().await;
    assert_eq!(data, "one");
    assert_ne!(control.cursor, greeted.cursor, "time has passed");
    clock.advance(1);
    assert_eq!(events.next().await, None);
    server.append("/s", "text/plain", b"two").await.expect(204);
    let target = format!("/s?offset={}&live=sse", control.next_offset);
    assert_eq!(Events::open(&server, &target).await.data().await.0, "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_after_a_minute_however_busy_the_stream_is() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.create("/s", "text/plain").await;
    let mut events = Events::open(&server, "/s?offset=-1&live=sse").await;
    events.control().await;
    clock.advance(60_000);
    // What was appended before the end may still come; then it ends.
    let mut writer = server.connect().await;
    for number in 0..200 {
        let body = format!("{number};");
        writer.ask("POST", "/s", &[TEXT], body.as_bytes()).await.expect(204);
    }
    let mut seen = 0;
    while events.next().await.is_some() {
        seen += 1;
    }
    assert!(seen < 400, "the session went on for {seen} events after its end");
}

/// A reader whose backlog overflowed reads on by offset: nothing is lost, nothing comes twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_far_behind_catches_up_without_loss() {
    let server = Setup { segment_bytes: 64 << 20, ..Setup::default() }.start().await;
    server.create("/j", "application/json").await;
    let mut events = Events::open(&server, "/j?offset=-1&live=sse").await;
    events.control().await;
    // 20 MB while it does not read: more than sockets and backlog hold.
    let padding = "x".repeat(50_000);
    let mut writer = server.connect().await;
    let headers = [("content-type", "application/json")];
    for number in 0..400 {
        let body = format!("[{{\"n\":{number},\"p\":\"{padding}\"}}]");
        writer.ask("POST", "/j", &headers, body.as_bytes()).await.expect(204);
    }
    writer.ask("POST", "/j", &[CLOSE], b"").await.expect(204);
    let (mut next, mut last) = (0, String::new());
    loop {
        let Some(event) = events.next().await else { panic!("ended without a closing event") };
        if event.kind == "data" {
            let messages: Vec<serde_json::Value> = serde_json::from_str(&event.data).unwrap();
            for message in messages {
                assert_eq!(message["n"], next, "after {last}");
                next += 1;
            }
        } else {
            let control: serde_json::Value = serde_json::from_str(&event.data).unwrap();
            let at = control["streamNextOffset"].as_str().unwrap().to_owned();
            assert!(at >= last, "{last} then {at}");
            last = at;
            if control["streamClosed"] == true {
                break;
            }
        }
    }
    assert_eq!(next, 400);
    assert_eq!(events.next().await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_offset_of_a_catch_up_is_one_to_go_on_from() {
    let server = Setup::large().start().await;
    server.create("/s", "text/plain").await;
    let mut writer = server.connect().await;
    let mut all = String::new();
    for number in 0..200 {
        let body = format!("{number}:{}\n", "y".repeat(number * 10));
        writer.ask("POST", "/s", &[TEXT], body.as_bytes()).await.expect(204);
        all.push_str(&body);
    }
    let mut events = Events::open(&server, "/s?offset=-1&live=sse").await;
    let (mut seen, mut pieces) = (String::new(), 0);
    loop {
        let (data, control) = events.data().await;
        seen.push_str(&data);
        pieces += 1;
        let target = format!("/s?offset={}", control.next_offset);
        assert_eq!(server.get(&target).await.expect(200).text(), all[seen.len()..]);
        if control.up_to_date {
            break;
        }
    }
    assert_eq!(seen, all);
    assert!(pieces > 1, "200 kB come in pieces");
}
