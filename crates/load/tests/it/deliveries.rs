//! Servers that deliver events as they like.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use serde_json::Value;

use crate::server::{Act, Request, answer, run, serve};

/// An address at which nobody listens yet, and which nobody is given who asks for any.
fn free_address() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let port = 10_000 + (std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let address = format!("127.0.0.1:{port}");
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

fn taken() -> Act {
    answer("200 OK", "", "{\"ok\":true}")
}

fn is_ingest(request: &Request) -> bool {
    request.path == "/ingest"
}

fn events(request: &Request) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&request.body).unwrap();
    body["events"].as_array().unwrap().clone()
}

/// A line to an endpoint that is called again and again.
struct Caller(BufReader<TcpStream>);

impl Caller {
    fn to(address: &str) -> Caller {
        Caller(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    /// Sends a delivery.
    fn call(&mut self, path: &str, event: &Value) {
        let body = serde_json::json!({ "id": "1", "payload": event }).to_string();
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        self.0.get_mut().write_all((head + &body).as_bytes()).unwrap();
    }

    /// Sends a delivery and waits for its answer; `false` when there is none.
    fn deliver(&mut self, path: &str, event: &Value) -> bool {
        self.call(path, event);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return false;
            }
        }
        self.0.read_exact(&mut [0; 13]).unwrap();
        true
    }
}

/// A server that delivers each event as often as `times` says, in the background.
fn delivering(sink: &str, times: impl Fn(u64) -> u64 + Send + Sync + 'static) -> String {
    let sink = sink.to_owned();
    let (queue, queued) = mpsc::sync_channel::<Value>(100_000);
    std::thread::spawn(move || {
        let mut caller = None;
        for event in queued {
            let caller = caller.get_or_insert_with(|| Caller::to(&sink));
            assert!(caller.deliver("/live/m0", &event));
        }
    });
    serve(move |request| {
        if is_ingest(request) {
            for event in events(request) {
                for _ in 0..times(event["n"].as_u64().unwrap()) {
                    queue.send(event.clone()).unwrap();
                }
            }
        }
        taken()
    })
}

const BRIEFLY: &str = "deliveries --connections 4 --batch 5 --warmup 0.05 --seconds 0.2 \
                       --patience 0.1 --sink";

#[test]
fn deliveries_are_counted_where_they_arrive() {
    let sink = free_address();
    let url = delivering(&sink, |_| 1);
    let report = run(&url, &format!("{BRIEFLY} {sink}")).unwrap();
    assert!(report.operations > 10 && report.errors.is_empty(), "{report}");
    assert_eq!(report.bytes, report.operations * 100);
    let delivered = report.deliveries.unwrap();
    assert_eq!(delivered.deliveries, report.operations);
    assert!(delivered.events > 10, "{delivered:?}");
}

#[test]
fn a_delivery_that_is_missing_or_comes_twice_is_an_error() {
    for (times, error) in [(0, "not delivered"), (2, "delivered twice")] {
        let sink = free_address();
        let url = delivering(&sink, move |number| if number == 7 { times } else { 1 });
        let report = run(&url, &format!("{BRIEFLY} {sink}")).unwrap();
        assert_eq!(report.errors[error], 1, "{report}");
        assert_eq!(report.errors.len(), 1, "{report}");
    }
}

#[test]
fn events_do_not_run_further_ahead_of_deliveries_than_allowed() {
    const AHEAD: u64 = 20;
    let (sink, waiting) = (free_address(), Arc::new(AtomicU64::new(0)));
    let most = Arc::new(AtomicU64::new(0));
    let (queue, queued) = mpsc::sync_channel::<Value>(100_000);
    let (left, address) = (Arc::clone(&waiting), sink.clone());
    std::thread::spawn(move || {
        let mut caller = None;
        for event in queued {
            let caller = caller.get_or_insert_with(|| Caller::to(&address));
            // The endpoint counts it somewhat later.
            left.fetch_sub(1, Ordering::SeqCst);
            assert!(caller.deliver("/live/m0", &event));
        }
    });
    let seen = Arc::clone(&most);
    let url = serve(move |request| {
        if is_ingest(request) {
            let events = events(request);
            let count = u64::try_from(events.len()).unwrap();
            seen.fetch_max(waiting.fetch_add(count, Ordering::SeqCst) + count, Ordering::SeqCst);
            events.into_iter().for_each(|event| queue.send(event).unwrap());
        }
        taken()
    });
    let report = run(&url, &format!("{BRIEFLY} {sink} --ahead {AHEAD}")).unwrap();
    assert!(report.operations > 10 && report.errors.is_empty(), "{report}");
    let most = most.load(Ordering::SeqCst);
    assert!((1..=AHEAD).contains(&most), "{most}");
}

#[test]
fn hooks_are_made_before_the_first_event() {
    let (sink, asked) = (free_address(), Arc::new(Mutex::new(Vec::new())));
    let hooks = Arc::clone(&asked);
    let url = serve(move |request| {
        let mut hooks = hooks.lock().unwrap();
        if is_ingest(request) {
            assert_eq!(hooks.len(), 3);
            return answer("503 Service Unavailable", "", "");
        }
        assert_eq!(request.path, "/subscriptions/subscribe");
        let hook: Value = serde_json::from_slice(&request.body).unwrap();
        hooks.push(hook["rpcMethod"].as_str().unwrap().to_owned());
        taken()
    });
    let report = run(&url, &format!("{BRIEFLY} {sink} --hooks 3")).unwrap();
    assert_eq!(report.operations, 0);
    assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["status 503"], "{report}");
    let mut asked = asked.lock().unwrap().clone();
    asked.sort();
    assert_eq!(asked, ["m0", "m1", "m2"]);
}

#[test]
fn a_sink_that_nobody_calls_says_so() {
    let sink = free_address();
    let error = run("http://127.0.0.1:1", &format!("{BRIEFLY} {sink} --loop")).unwrap_err();
    assert_eq!(error.to_string(), format!("nobody called {sink}"));
}

#[test]
fn a_delivery_is_timed_by_the_event_that_it_carries() {
    let sink = free_address();
    let address = sink.clone();
    let url = serve(move |request| {
        if is_ingest(request) {
            let event = events(request).remove(0);
            let mut caller = Caller::to(&address);
            if event["n"] == 2 {
                // An older one again: not what is waited for, and counted as one too many.
                assert!(caller.deliver("/live/m0", &serde_json::json!({ "n": 1, "text": "" })));
            }
            assert!(caller.deliver("/live/m0", &event));
        }
        taken()
    });
    let report = run(&url, &format!("delivery --count 3 --pause 0 --sink {sink}")).unwrap();
    assert_eq!(report.operations, 3, "{report}");
    assert_eq!(report.errors["delivered twice"], 1, "{report}");
    assert_eq!(report.answer_us.unwrap().count, 3);
}

#[test]
fn an_event_that_is_answered_and_not_delivered_is_an_error_with_an_answer() {
    let sink = free_address();
    let address = sink.clone();
    let url = serve(move |request| {
        if is_ingest(request) && events(request)[0]["n"] != 1 {
            assert!(Caller::to(&address).deliver("/live/m0", &events(request)[0]));
        }
        taken()
    });
    let arguments = format!("delivery --count 3 --patience 0.1 --sink {sink}");
    let report = run(&url, &arguments).unwrap();
    assert_eq!((report.operations, report.errors["not delivered"]), (2, 1), "{report}");
    assert_eq!(report.answer_us.unwrap().count, 3);
}

#[test]
fn hooks_that_hang_are_called_until_no_more_are_before_it_is_measured() {
    let (sink, beside) = (free_address(), free_address());
    let (to, hanging) = (sink.clone(), beside.clone());
    let lines = Mutex::new(Vec::new());
    let live = AtomicU64::new(0);
    let url = serve(move |request| {
        let mut lines = lines.lock().unwrap();
        if !is_ingest(request) {
            let hook: Value = serde_json::from_slice(&request.body).unwrap();
            live.fetch_add(u64::from(hook["workerId"] == "live"), Ordering::SeqCst);
            return taken();
        }
        let event = events(request).remove(0);
        // This server has room for five that hang.
        if lines.len() < 5 {
            let mut caller = Caller::to(&hanging);
            caller.call("/hanging/m0", &event);
            lines.push(caller);
        }
        if live.load(Ordering::SeqCst) == 1 {
            assert_eq!(lines.len(), 5);
            assert!(Caller::to(&to).deliver("/live/m0", &event));
            assert!(Caller::to(&to).deliver("/elsewhere/m0", &event));
            assert!(!Caller::to(&to).deliver("/dead/m0", &event));
        }
        taken()
    });
    let arguments = format!("delivery --count 3 --hanging 2 --sink {sink} --beside {beside}");
    let report = run(&url, &arguments).unwrap();
    assert_eq!((report.operations, report.errors.len()), (3, 0), "{report}");
    assert_eq!(report.deliveries.unwrap().hanging, 5);
}

#[test]
fn a_flood_comes_from_a_tenant_of_its_own() {
    let (sink, beside) = (free_address(), free_address());
    let (to, flooded) = (sink.clone(), beside.clone());
    let url = serve(move |request| {
        let head = request.head.to_ascii_lowercase();
        assert!(head.contains("authorization: bearer secret"), "{head}");
        let is_calm = head.contains("x-tenant-namespace: calm");
        assert!(is_calm || head.contains("x-tenant-namespace: flood"), "{head}");
        if is_ingest(request) {
            let events = events(request);
            assert_eq!(events.len(), if is_calm { 1 } else { 10 });
            let address = if is_calm { &to } else { &flooded };
            assert!(Caller::to(address).deliver("/live/m0", &events[0]));
        }
        taken()
    });
    let arguments = "delivery --flood --count 3 --settle 0.05 --key secret";
    let report = run(&url, &format!("{arguments} --sink {sink} --beside {beside}")).unwrap();
    assert_eq!((report.operations, report.errors.len()), (3, 0), "{report}");
    let delivered = report.deliveries.unwrap();
    assert!(delivered.flood_events_per_second.unwrap() > 0.0, "{delivered:?}");
    assert!(delivered.flood_deliveries.unwrap() > 0, "{delivered:?}");
}
