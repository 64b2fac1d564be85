//! Nobody brings about a batch that is larger than the log takes: what is too much at once is refused
//! or worked off in slices, and what can never be done is set aside. Each of these ended the process,
//! at every start anew, or was tried for ever.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use reveille_store::batch::Batch;
use reveille_store::disk::RealDisk;
use reveille_store::log;
use reveille_store::open::OpenedStore;
use reveille_store::table::LsmTable;
use serde_json::{Value, json};

use crate::harness::*;

/// The first bytes of the keys of those who follow, and of timers.
const FOLLOWER: u8 = 0x0a;
const TIMER: u8 = 0x05;

/// As many consumers as it took to end the process.
const MANY: usize = 40;

/// The store of a server that was stopped.
fn store(directory: &Path) -> OpenedStore {
    let partition = directory.join("data/partition-0000");
    let table = Arc::new(LsmTable::open(&partition.join("table")).unwrap());
    let disk = Arc::new(RealDisk::open(partition.join("log")).unwrap());
    let config = log::Config { segment_bytes: 2 << 20, sync: true };
    reveille_store::open::open(disk, table, config, 8 << 20, Box::new(|| 1)).unwrap()
}

fn count(directory: &Path, first: u8) -> usize {
    store(directory).state.reader().keys(&[first], &[first + 1], 100_000).unwrap().len()
}

/// Paths to follow, as many and as long as a consumer may.
fn many_paths(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("/followed/{number:04}/{}", "f".repeat(45))).collect()
}

async fn follow(wakes: &Wakes, call: &Call, paths: &[String]) -> Answer {
    let body = json!({ "epoch": call.epoch(), "subscribe": paths });
    wakes.call(call, body).await
}

/// Consumers of one subscription that follow as much as they may, `/shared` among it, and rest.
async fn crowd() -> Wakes {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let paths: Vec<String> = many_paths(998).into_iter().chain(["/shared".to_owned()]).collect();
    for number in 0..MANY {
        let tail = wakes.create(&format!("/a/{number}"), "[1]").await;
        let call = wakes.woken().await;
        follow(&wakes, &call, &paths).await.expect(200);
        wakes.finish(&call, &tail).await.expect(200);
        call.ok();
    }
    wakes.quiet("all of them rest").await;
    wakes
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_wakes_a_crowd_of_large_consumers_and_its_end_is_survived() {
    let mut wakes = crowd().await;
    wakes.create("/shared", "[1]").await;
    let mut woken = BTreeSet::new();
    for _ in 0..MANY {
        let call = wakes.woken().await;
        assert_eq!((call.epoch(), &call.json()["triggered_by"]), (2, &json!(["/shared"])));
        assert!(woken.insert(call.primary()), "{} was told twice", call.primary());
        call.done();
    }
    for number in 0..MANY {
        wakes.idle("s", &format!("/a/{number}")).await;
    }
    wakes.server.delete("/a/*?subscription=s").await.expect(204);
    // All that they follow is removed, which is more than the log takes at once.
    let directory = wakes.directory().to_owned();
    let mut left = usize::MAX;
    for _ in 0..20 {
        assert_eq!(wakes.server.fatal(), Vec::<String>::new());
        assert_eq!(wakes.server.metric("reveille_timers_set_aside").await, 0);
        wakes = wakes.restart_after(|| left = count(&directory, FOLLOWER)).await;
        if left == 0 {
            break;
        }
        wakes.quiet("the subscription is gone").await;
    }
    assert_eq!(left, 0, "nobody follows any more");
    wakes.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_follows_so_many_bytes_and_no_more() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    let long = |count: usize| -> Vec<String> {
        (0..count).map(|number| format!("/{number:04}{}", "f".repeat(2_000))).collect()
    };
    let answer = follow(&wakes, &call, &long(40)).await.expect(400);
    assert_eq!(answer.code(), "INVALID_REQUEST");
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("65536 bytes"), "{message}");
    let followed = wakes.record("s", "/a/1").unwrap().consumer.links.len();
    assert_eq!(followed, 1, "nothing of it was done");
    follow(&wakes, &call, &long(30)).await.expect(200);
    call.ok();
}

/// A consumer whose own path is so long that removing it is more than this log takes.
#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_be_done_is_refused_or_set_aside_and_everybody_goes_on() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create(&format!("/a/{}", "p".repeat(2_040)), "[1]").await;
    let call = wakes.woken().await;
    let paths = many_paths(999);
    let answer = follow(&wakes, &call, &paths).await.expect(413);
    assert_eq!(answer.code(), "CHANGE_TOO_LARGE");
    assert_eq!(answer.get("retry-after"), None, "it would be too large again");
    let (some, others) = paths.split_at(500);
    follow(&wakes, &call, some).await.expect(200);
    follow(&wakes, &call, others).await.expect(200);
    call.done();
    wakes.server.delete("/a/*?subscription=s").await.expect(204);
    let set_aside = async |wakes: &Wakes| wakes.server.metric("reveille_timers_set_aside").await;
    eventually("it to be set aside", async || (set_aside(&wakes).await == 1).then_some(())).await;
    wakes.quiet("the subscription is gone").await;
    let mut wakes = wakes.restart().await;
    wakes.quiet("the server goes on").await;
    assert_eq!(set_aside(&wakes).await, 1, "it is remembered, and not tried again");
    assert_eq!(wakes.server.fatal(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_nobody_can_read_is_set_aside_and_hides_no_other() {
    let wakes = Wakes::start().await;
    let (directory, now) = (wakes.directory().to_owned(), wakes.now());
    let unreadable = || {
        let mut opened = store(&directory);
        let mut batch = Batch::default();
        for name in [&b"\xee\x01what"[..], b"", b"\x02\xff"] {
            let key = [&[TIMER], &(now - 1).to_be_bytes()[..], name].concat();
            batch.set(key.into(), Some(Bytes::from_static(b"ever")));
        }
        opened.log.commit(&[&batch.encode().0]).unwrap();
    };
    let mut wakes = wakes.restart_after(unreadable).await;
    wakes.quiet("the server goes on").await;
    eventually("all of them to be set aside", async || {
        // Whatever cannot be read is given some time: the disk may fail for a while.
        wakes.clock.advance(5_000);
        (wakes.server.metric("reveille_timers_set_aside").await == 3).then_some(())
    })
    .await;
    let mut wakes = wakes.restart().await;
    wakes.quiet("the server goes on").await;
    assert_eq!(wakes.server.metric("reveille_timers_set_aside").await, 3);
    let list = async |wakes: &Wakes, query: &str| {
        wakes.server.get(&format!("/admin/v1/timers{query}")).await.expect(200).json()
    };
    let all = list(&wakes, "").await;
    let shown = |it: &Value| (it["domain"].clone(), it["name"].clone(), it["due_at"].clone());
    let timers: Vec<_> = all["timers"].as_array().unwrap().iter().map(shown).collect();
    let due = json!(now - 1);
    assert_eq!(
        timers,
        [
            (json!(null), json!(""), due.clone()),
            (json!("wakes"), json!("\\x02\\xff"), due.clone()),
            (json!(null), json!("\\xee\\x01what"), due),
        ]
    );
    // Page by page they are the same.
    let first = list(&wakes, "?limit=2").await;
    let next = first["next"].as_str().unwrap();
    let second = list(&wakes, &format!("?after={next}")).await;
    assert_eq!((first["timers"].as_array().unwrap().len(), &second["next"]), (2, &Value::Null));
    assert_eq!(second["timers"][0], all["timers"][2]);
    // One that is put back is tried, and set aside again if that is of no use.
    let id = all["timers"][0]["id"].as_str().unwrap();
    let retry = format!("/admin/v1/timers/{id}/retry");
    wakes.server.post(&retry, &Value::Null).await.expect(202);
    assert_eq!(wakes.server.post(&retry, &Value::Null).await.expect(404).code(), "TIMER_NOT_FOUND");
    assert_eq!(
        wakes.server.post("/admin/v1/timers/x/retry", &Value::Null).await.expect(404).code(),
        "TIMER_NOT_FOUND"
    );
    assert_eq!(list(&wakes, "").await["timers"].as_array().unwrap().len(), 2);
    eventually("it to be set aside again", async || {
        wakes.clock.advance(5_000);
        (wakes.server.metric("reveille_timers_set_aside").await == 3).then_some(())
    })
    .await;
    assert_eq!(list(&wakes, "").await, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_that_appends_to_many_streams_wakes_everybody_who_is_for_them() {
    const STREAMS: usize = 100;
    const SUBSCRIPTIONS: usize = 5;
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    let tail = wakes.create("/a/1", "[1]").await;
    let call = wakes.woken().await;
    let path = |number: usize| format!("/b/{number:03}");
    for number in 0..STREAMS {
        wakes.create(&path(number), "[]").await;
    }
    for number in 0..SUBSCRIPTIONS {
        wakes.subscribe(&format!("b{number}"), "/b/*").await;
    }
    let append = |number| json!({ "path": path(number), "messages": [1] });
    let appends: Vec<Value> = (0..STREAMS).map(append).collect();
    let body = json!({ "epoch": 1, "done": true, "append": appends,
                       "acks": [{ "path": "/a/1", "offset": tail }] });
    wakes.call(&call, body).await.expect(200);
    call.ok();
    let mut woken = BTreeSet::new();
    for _ in 0..STREAMS * SUBSCRIPTIONS {
        let call = wakes.woken().await;
        assert_eq!(call.epoch(), 1);
        assert!(woken.insert(call.consumer()), "{} was told twice", call.consumer());
        call.done();
    }
    wakes.quiet("once is enough").await;
}
