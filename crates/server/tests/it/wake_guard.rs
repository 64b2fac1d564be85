//! What was allowed when a subscription was made is asked again when its endpoint is called.

use std::net::SocketAddr;
use std::sync::Arc;

use reveille_deliver::resolve::{Resolve, ResolveFuture};
use reveille_engine::Rules;
use serde_json::json;

use crate::harness::*;

/// A name service that was made to point inside.
struct Rebound;

impl Resolve for Rebound {
    fn resolve(&self, _tenant: &Arc<str>, host: &str, port: u16) -> ResolveFuture {
        let inside = match host {
            "loopback.example" => "127.0.0.1",
            "private.example" => "10.0.0.1",
            "metadata.example" => "169.254.169.254",
            _ => "::ffff:127.0.0.1",
        };
        let address = SocketAddr::new(inside.parse().unwrap(), port);
        Box::pin(async move { Ok(vec![address]) })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_points_inside_is_not_called() {
    let clock = HandClock::new();
    let setup = Setup { resolver: Some(Arc::new(Rebound)), ..Setup::on(&clock) };
    let mut wakes = Wakes::of(clock, setup).await;
    let port = wakes.sink.port();
    let names = ["loopback", "private", "metadata", "mapped"];
    for name in names {
        let body = json!({ "webhook": format!("https://{name}.example:{port}/x") });
        wakes.put_subscription(name, "/a/*", &body).await.expect(201);
    }
    wakes.create("/a/1", "[1]").await;
    for name in names {
        let (attempt, _) = wakes.paused(name, "/a/1").await;
        assert_eq!(attempt, 1);
        let (_, error) = wakes.record(name, "/a/1").unwrap().last_error.unwrap();
        assert_eq!(&*error, "the address is not allowed", "which one is not said");
    }
    assert_eq!(wakes.sink.connections(), 0, "nobody even knocked");
    wakes.quiet("nobody was called").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_became_stricter_hold_for_older_subscriptions() {
    let mut wakes = Wakes::start().await;
    wakes.subscribe("s", "/a/*").await;
    wakes.create("/a/1", "[1]").await;
    let first = wakes.woken().await;
    let connections = wakes.sink.connections();
    wakes.setup.rules = Rules::default();
    let mut wakes = wakes.restart().await;
    let (attempt, until) = wakes.paused("s", "/a/1").await;
    assert_eq!(attempt, 1);
    wakes.advance_to(until);
    let again =
        |it: &reveille_core::consumer::Consumer| it.deadline().is_some_and(|at| at.0 > until);
    wakes.until("s", "/a/1", again).await;
    assert_eq!(wakes.sink.connections(), connections);
    assert!(wakes.sink.come().is_none());
    // It is still there, and may be asked for again as it is.
    let body = json!({ "webhook": wakes.sink.url() });
    wakes.put_subscription("s", "/a/*", &body).await.expect(200);
    wakes.put_subscription("t", "/a/*", &body).await.expect(400);
    drop(first);
}
