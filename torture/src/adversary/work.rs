//! Attacks with requests that are each allowed and together much work.

use std::time::{Duration, Instant};

use anyhow::ensure;
use harness::http::{Connection, Request};
use serde_json::{Value, json};

use super::Target;
use super::endpoint::{Endpoint, HANG, REFUSE};

const SUBSCRIPTIONS: usize = 300;
const CONSUMERS: usize = 40;
const LONG_PATHS: usize = 1_000;

/// Consumers that follow as much as they may, all woken by one append and all ended at once.
pub(super) fn large_batches(target: &Target) -> anyhow::Result<String> {
    let claims = Endpoint::open()?;
    let webhook = json!({ "webhook": format!("http://{}/claim", claims.address) });
    target.expect("PUT", "/big/*?subscription=big", &webhook)?;
    for number in 0..CONSUMERS {
        target.expect("PUT", &format!("/big/{number}"), &json!([1]))?;
    }
    let mut followed = 0;
    let mut seen = 0;
    let until = Instant::now() + Duration::from_secs(30);
    while seen < CONSUMERS && Instant::now() < until {
        for (callback, token, epoch) in claims.take_callbacks() {
            seen += 1;
            followed += follow_much(target, &callback, &token, epoch)?;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(followed > 0, "no consumer follows anything");
    // One append that all of them wait for.
    target.expect("PUT", "/shared/stream", &json!([1]))?;
    target.expect("POST", "/shared/stream", &json!([2]))?;
    let ended = target.send("DELETE", "/big/*?subscription=big", b"")?;
    ensure!((200..300).contains(&ended.status), "ending the subscription: {}", ended.status);
    while !target.is_over() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(format!("{CONSUMERS} consumers of {followed} streams in all, woken and ended at once"))
}

/// Has a consumer follow long paths, as many as the server takes. Returns how many.
fn follow_much(target: &Target, callback: &str, token: &str, epoch: u64) -> anyhow::Result<usize> {
    let path = callback.find("/callback/").and_then(|at| callback.get(at..)).unwrap_or(callback);
    let authorization = format!("Bearer {token}");
    let headers = [("authorization", &*authorization), ("content-type", "application/json")];
    let send = |body: Value| {
        let body = body.to_string();
        let request =
            Request { method: "POST", target: path, headers: &headers, body: body.as_bytes() };
        Connection::open(target.server)?.send(request)
    };
    let long = "p".repeat(1_900);
    let (mut followed, mut count) = (0, LONG_PATHS / 4);
    // What is refused as too much is tried again with half of it.
    while count > 0 && followed + count < LONG_PATHS {
        let numbers = followed..followed + count;
        let paths: Vec<Value> =
            numbers.map(|number| format!("/far/{number}/{long}").into()).collect();
        let answer = send(json!({ "epoch": epoch, "subscribe": paths }))?;
        match answer.status {
            200 => followed += count,
            400 | 413 | 422 => count /= 2,
            status => anyhow::bail!("a callback: {status} {}", answer.text()),
        }
    }
    let last = json!({ "epoch": epoch, "subscribe": ["/shared/stream"], "done": true });
    // Where there is no room for another one, it is done with what it has.
    if send(last)?.status != 200 {
        let answer = send(json!({ "epoch": epoch, "done": true }))?;
        ensure!(answer.status == 200, "a callback: {} {}", answer.status, answer.text());
    }
    Ok(followed)
}

/// Subscriptions and hooks whose endpoint never answers.
pub(super) fn hanging_webhooks(target: &Target) -> anyhow::Result<String> {
    let webhook = json!({ "webhook": format!("http://{}{HANG}", target.endpoint) });
    for number in 0..SUBSCRIPTIONS {
        target.expect("PUT", &format!("/loud/**?subscription=hang-{number}"), &webhook)?;
        if number % 10 == 0 {
            let hook = json!({ "workerId": "hang", "pattern": "loud.*",
                               "rpcMethod": format!("m{number}") });
            target.expect("POST", "/subscriptions/subscribe", &hook)?;
        }
    }
    let mut sent = 0;
    while !target.is_over() {
        let path = format!("/loud/{sent}");
        let created = target.send("PUT", &path, b"[1]").map(|answer| answer.status);
        let event = json!({ "events": [{ "type": "loud.x" }] }).to_string();
        let ingested = target.send("POST", "/ingest", event.as_bytes());
        sent += usize::from(matches!(created, Ok(201)) && ingested.is_ok());
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(format!("{sent} streams and events for {SUBSCRIPTIONS} endpoints that hang"))
}

/// Pages of dead letters as large as an event may be, asked for at once.
pub(super) fn large_pages(target: &Target) -> anyhow::Result<String> {
    let hook = json!({ "workerId": "w", "pattern": "large.*", "rpcMethod": REFUSE.trim_start_matches('/'),
                       "maxRetries": 1 });
    let made = target.expect("POST", "/subscriptions/subscribe", &hook)?;
    let made: Value = serde_json::from_slice(&made.body)?;
    let id = made.get("subscriptionId").and_then(Value::as_str).unwrap_or_default().to_owned();
    let large = "z".repeat(250_000);
    let events: Vec<Value> = (0..30).map(|_| json!({ "type": "large.x", "text": large })).collect();
    let body = json!({ "events": events });
    for _ in 0..10 {
        target.expect("POST", "/ingest", &body)?;
    }
    let pages = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut pages = 0;
                    while !target.is_over() {
                        for page in ["dead-letters?limit=400", "deliveries?limit=400"] {
                            let page = format!("/subscriptions/{id}/{page}");
                            pages += usize::from(target.send("GET", &page, b"").is_ok());
                        }
                    }
                    pages
                })
            })
            .collect();
        asking.into_iter().map(|it| it.join().unwrap_or(0)).sum::<usize>()
    });
    ensure!(pages > 0, "no page was answered");
    Ok(format!("{pages} pages of 300 dead letters of 250 kB"))
}

/// Bodies that become far larger when they are taken apart, sent by strangers and by the tenant.
pub(super) fn large_trees(target: &Target) -> anyhow::Result<String> {
    let many = format!("{{\"epoch\":1,\"acks\":[{}{{}}]}}", "{},".repeat(3_000_000));
    let deep = "[".repeat(5_000_000);
    let stranger =
        [("authorization", "Bearer no-such-token"), ("content-type", "application/json")];
    let mut sent = 0;
    while !target.is_over() {
        for body in [&many, &deep] {
            let request = Request {
                method: "POST",
                target: "/callback/a:%2Fb",
                headers: &stranger,
                body: body.as_bytes(),
            };
            // The server may hang up before all of it was sent.
            if let Ok(mut connection) = Connection::open(target.server) {
                let answer = connection.send(request);
                ensure!(answer.is_err() || answer.is_ok_and(|it| it.status >= 400), "it was taken");
            }
            for path in ["/loud/tree", "/ingest", "/subscriptions/subscribe"] {
                let answer = target.send("POST", path, body.as_bytes());
                ensure!(answer.is_err() || answer.is_ok_and(|it| it.status >= 400), "it was taken");
            }
            sent += 4;
        }
    }
    Ok(format!("{sent} bodies of millions of brackets"))
}

/// Patterns that match in many ways, and paths of many segments.
pub(super) fn patterns(target: &Target) -> anyhow::Result<String> {
    let webhook = json!({ "webhook": format!("http://{}/loud", target.endpoint) });
    let mut connection = Connection::open(target.server)?;
    let mut made = 0;
    let building = Instant::now();
    for number in 0..3_000_u32 {
        let segments: String =
            (0..14).map(|bit| if number >> bit & 1 == 1 { "/a" } else { "/*" }).collect();
        let subscription = format!("/**{segments}/z?subscription=p-{number}");
        let body = webhook.to_string();
        let answer = target.send_on(&mut connection, "PUT", &subscription, body.as_bytes())?;
        made += usize::from(answer.status == 201);
        if building.elapsed() > Duration::from_secs(20) {
            break;
        }
    }
    ensure!(made > 0, "no pattern was taken");
    let mut sent = 0;
    let prepared = target.prepared();
    while !prepared.is_over() {
        let path = format!("{}/{sent}", "/a".repeat(900));
        let answer = target.send_on(&mut connection, "PUT", &path, b"[1]")?;
        ensure!(answer.status < 500 || answer.status == 503, "{}", answer.status);
        sent += 1;
    }
    Ok(format!("{sent} paths of 900 segments beside {made} patterns"))
}

/// The same with types of events.
pub(super) fn event_patterns(target: &Target) -> anyhow::Result<String> {
    let mut made = 0;
    for number in 0..500 {
        let pattern = ["**.*a.**.a*.**.*b", "**.a*.**.*a*.**", "**.*a*b*.**.z", "*a*.**.*b*.**"];
        let pattern = pattern.get(number % pattern.len()).copied().unwrap_or("**");
        let hook = json!({ "workerId": "w", "pattern": pattern,
                           "rpcMethod": format!("m{number}") });
        let answer =
            target.send("POST", "/subscriptions/subscribe", hook.to_string().as_bytes())?;
        made += usize::from(answer.status == 200);
    }
    let mut sent = 0;
    while !target.is_over() {
        let events: Vec<Value> = (0..1_000)
            .map(|number| {
                let kind = format!("{}a{number}", "a.".repeat(120));
                json!({ "type": kind })
            })
            .collect();
        let body = json!({ "events": events }).to_string();
        if let Ok(answer) = target.send("POST", "/ingest", body.as_bytes()) {
            ensure!(answer.status < 500 || answer.status == 503, "{}", answer.status);
            sent += 1;
        }
        let short: Vec<Value> = (0..1_000)
            .map(|number| json!({ "type": format!("{}a{number}", "a.".repeat(8)) }))
            .collect();
        let body = json!({ "events": short }).to_string();
        let _ = target.send("POST", "/ingest", body.as_bytes());
    }
    Ok(format!("{sent} batches of 1,000 long types beside {made} patterns"))
}

/// Webhooks at names that nobody resolves.
pub(super) fn slow_names(target: &Target) -> anyhow::Result<String> {
    for number in 0..SUBSCRIPTIONS {
        let webhook = json!({ "webhook": format!("https://host-{number}.example/hook") });
        target.expect("PUT", &format!("/loud/**?subscription=name-{number}"), &webhook)?;
    }
    let mut sent = 0;
    while !target.is_over() {
        let created = target.send("PUT", &format!("/loud/{sent}"), b"[1]");
        sent += usize::from(created.is_ok_and(|answer| answer.status == 201));
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(format!("{sent} streams for {SUBSCRIPTIONS} names that are never found"))
}
