//! Waiting no longer than a while, on the engine's clock.

use std::future::Future;

use reveille_engine::doors::Clock;

/// The future's output, or `None` if it takes longer than `millis`.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    millis: u64,
    future: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        value = future => Some(value),
        () = clock.sleep_until(clock.now() + millis) => None,
    }
}
