//! Waiting no longer than a while, on the engine's clock.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use reveille_engine::doors::Clock;

/// The future's output, or `None` if it takes longer than `millis`.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    millis: u64,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    // Most futures here are ready at once: then no timer is made.
    let ready = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    if let Poll::Ready(value) = ready {
        return Some(value);
    }
    tokio::select! {
        biased;
        value = future => Some(value),
        () = clock.sleep_until(clock.now() + millis) => None,
    }
}
