//! Alive, ready, and what is counted.

use crate::harness::*;

/// A prober that asks more often than an answer is kept must still hear of a change.
#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_looked_at_again_however_often_it_is_asked_for() {
    let clock = HandClock::new();
    let server = Setup::on(&clock).start().await;
    server.get("/readyz").await.expect(200);
    guarded("the engine to stop", server.engine.shutdown()).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        clock.advance(250);
        statuses.push(server.get("/readyz").await.status());
    }
    assert_eq!(statuses.last(), Some(&503), "{statuses:?} within a second and a half");
}

#[tokio::test(flavor = "multi_thread")]
async fn being_alive_is_not_being_ready() {
    let server = Setup { min_free_bytes: u64::MAX / 2, ..Setup::default() }.start().await;
    server.get("/healthz").await.expect(200);
    server.get("/health").await.expect(200);
    let answer = server.get("/readyz").await.expect(503);
    assert!(answer.json()["problem"].as_str().unwrap().contains("disk"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_that_clients_invent_are_not_counted_one_by_one() {
    let server = Setup::default().start().await;
    for number in 0..50 {
        server.ask(&format!("INVENTED{number}"), "/s", &[], b"").await.expect(405);
    }
    let text = server.get("/metrics").await.expect(200).text();
    assert!(!text.contains("INVENTED"), "{text}");
    assert!(text.contains("reveille_http_requests_total"));
    assert!(text.ends_with("# EOF\n"));
}
