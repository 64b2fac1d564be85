//! Permits: how many requests are under way at once, and that nothing is left of those that ended.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::*;
use crate::destination::{Destination, Rules};

fn origin(host: &str) -> Origin {
    let destination = Destination::parse(&format!("https://{host}/"), &Rules::default());
    destination.unwrap().origin().clone()
}

fn pool() -> Pool {
    Pool::new(Arc::new(|| 0))
}

/// Polls once: a permit that is free is had at once. (Tokio would have us pause after some.)
async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(tokio::task::unconstrained(future));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn an_origin_with_too_many_requests_waits_and_others_do_not() {
    let (pool, slow, other) = (pool(), origin("slow.example"), origin("other.example"));
    let mut permits = Vec::new();
    for _ in 0..BUSY_PER_ORIGIN_MAX {
        permits.push(now(pool.acquire(&slow)).await.unwrap().unwrap());
    }
    assert!(now(pool.acquire(&slow)).await.is_none());
    // The one that gave up waiting holds nothing of what is for all.
    for _ in 0..BUSY_MAX - BUSY_PER_ORIGIN_MAX {
        permits.push(now(pool.acquire(&other)).await.unwrap().unwrap());
    }
    assert!(now(pool.acquire(&origin("third.example"))).await.is_none());
    permits.swap_remove(0);
    assert!(now(pool.acquire(&slow)).await.is_some());
}

#[tokio::test]
async fn origins_that_nobody_calls_are_forgotten() {
    let (pool, one) = (pool(), origin("one.example"));
    let permit = pool.acquire(&one).await;
    for number in 0..10 {
        drop(pool.acquire(&origin(&format!("{number}.example"))).await);
    }
    pool.sweep();
    assert_eq!(pool.lock().origins.keys().collect::<Vec<_>>(), [&one]);
    drop(permit);
    pool.sweep();
    assert!(pool.lock().origins.is_empty());
}
