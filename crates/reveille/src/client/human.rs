//! Times and sizes as people say them.

use reveille_core::Millis;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Texts in a table are cut here; whoever wants the rest has it shown, or takes JSON.
const TEXT_CHARS_MAX: usize = 80;

/// How far away a moment is: `3m ago`, `in 12s`.
pub(crate) fn moment(now: Millis, then: Millis) -> String {
    let (past, future) = (now.since(then), then.since(now));
    match past.max(future) {
        distance if distance < SECOND => "now".to_owned(),
        distance if past > 0 => format!("{} ago", period(distance)),
        distance => format!("in {}", period(distance)),
    }
}

/// How long something takes, in its largest unit: `250ms`, `12s`, `3m`, `47h`, `2d`.
pub(crate) fn period(ms: u64) -> String {
    match ms {
        ..SECOND => format!("{ms}ms"),
        SECOND..MINUTE => format!("{}s", ms / SECOND),
        MINUTE..HOUR => format!("{}m", ms / MINUTE),
        // Up to two days the hours still matter.
        _ if ms < 2 * DAY => format!("{}h", ms / HOUR),
        _ => format!("{}d", ms / DAY),
    }
}

/// How large something is: `512 B`, `1.5 KiB`, `12 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let Some(power) = bytes.checked_ilog2().map(|log| log / 10).filter(|power| *power > 0) else {
        return format!("{bytes} B");
    };
    let unit = usize::try_from(power - 1).ok().and_then(|index| units.get(index));
    let unit = unit.unwrap_or(&"");
    let tenths = (u128::from(bytes) * 10) >> (10 * power);
    match tenths {
        ..100 => format!("{}.{} {unit}", tenths / 10, tenths % 10),
        _ => format!("{} {unit}", tenths / 10),
    }
}

/// The beginning of a text that may be long.
pub(crate) fn shorten(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_by_their_distance() {
        let now = Millis(1_000 * DAY);
        let table = [
            (0, "now", "now"),
            (999, "now", "now"),
            (1_000, "1s ago", "in 1s"),
            (59_999, "59s ago", "in 59s"),
            (60_000, "1m ago", "in 1m"),
            (3 * MINUTE + 20 * SECOND, "3m ago", "in 3m"),
            (HOUR, "1h ago", "in 1h"),
            (47 * HOUR, "47h ago", "in 47h"),
            (2 * DAY, "2d ago", "in 2d"),
            (400 * DAY, "400d ago", "in 400d"),
        ];
        for (distance, past, future) in table {
            assert_eq!(moment(now, Millis(now.0 - distance)), past);
            assert_eq!(moment(now, Millis(now.0 + distance)), future);
        }
        assert!(moment(now, Millis::NEVER).starts_with("in "));
    }

    #[test]
    fn sizes_have_two_digits_or_are_whole() {
        let table = [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (10_239, "9.9 KiB"),
            (10_240, "10 KiB"),
            (1 << 20, "1.0 MiB"),
            ((1 << 20) - 1, "1023 KiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "15 EiB"),
        ];
        for (bytes, expected) in table {
            assert_eq!(size(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shorten("short"), "short");
        let long = "é".repeat(TEXT_CHARS_MAX + 1);
        assert_eq!(shorten(&long), format!("{}…", "é".repeat(TEXT_CHARS_MAX)));
    }
}
