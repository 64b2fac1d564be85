//! The `Stream-Cursor` of live answers, by which caches collapse readers of one interval.

use crate::time::Millis;

/// 2024-10-09T00:00:00Z, where the protocol begins to count.
const EPOCH_MS: u64 = 1_728_432_000_000;
const INTERVAL_MS: u64 = 20_000;
/// At most an hour of intervals is added when a client is ahead.
const JITTER_INTERVALS_MAX: u64 = 3_600_000 / INTERVAL_MS;

/// The cursor to answer with. A client that already has this interval's cursor, or a later one,
/// gets a later one still, `jitter` intervals on, so that a cache never serves it its own answer.
pub fn next(now: Millis, client: Option<&str>, jitter: u64) -> u64 {
    let current = now.0.saturating_sub(EPOCH_MS) / INTERVAL_MS;
    let plain = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match client.filter(plain).and_then(|text| text.parse::<u64>().ok()) {
        Some(ahead) if ahead >= current => ahead.saturating_add(1 + jitter % JITTER_INTERVALS_MAX),
        Some(_) | None => current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_follow_the_clock_and_never_repeat_the_clients() {
        let now = Millis(EPOCH_MS + 100 * INTERVAL_MS + 5);
        assert_eq!(next(now, None, 7), 100);
        assert_eq!(next(now, Some("99"), 7), 100);
        assert_eq!(next(now, Some("abc"), 7), 100);
        assert_eq!(next(now, Some(""), 7), 100);
        assert_eq!(next(now, Some("100"), 0), 101);
        assert_eq!(next(now, Some("100"), 7), 108);
        assert_eq!(next(now, Some("5000"), 179), 5180);
        assert_eq!(next(now, Some("5000"), 180), 5001);
    }
}
