//! Lengths of time as Go writes them, `500ms`, `1.5s`, `1m30s`, down to whole milliseconds.

/// The text is no duration, or none that can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("must be a duration like `500ms`, `5s` or `1m30s`")]
    Form,
    #[error("must not be negative")]
    Negative,
    #[error("must be whole milliseconds: nothing shorter is kept")]
    TooFine,
    #[error("is longer than anybody can wait")]
    TooLong,
}

/// Units, the longest names first where one begins with another, in nanoseconds.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const NANOS_PER_MS: u128 = 1_000_000;
/// Digits of a part that are read; nobody means more.
const DIGITS_MAX: usize = 18;

/// Reads a duration, as milliseconds.
pub fn parse_ms(text: &str) -> Result<u64, DurationError> {
    if text.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Err(DurationError::Negative);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(DurationError::Form);
    }
    let mut nanos = 0_u128;
    while !rest.is_empty() {
        let (part, after) = parse_part(rest)?;
        nanos = nanos.checked_add(part).ok_or(DurationError::TooLong)?;
        rest = after;
    }
    if !nanos.is_multiple_of(NANOS_PER_MS) {
        return Err(DurationError::TooFine);
    }
    u64::try_from(nanos / NANOS_PER_MS).map_err(|_| DurationError::TooLong)
}

/// A number and its unit, as nanoseconds, and what follows.
fn parse_part(text: &str) -> Result<(u128, &str), DurationError> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::Form);
    }
    if whole.len() > DIGITS_MAX || fraction.len() > DIGITS_MAX {
        return Err(DurationError::TooLong);
    }
    let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (name, rest) = rest.split_at_checked(end).ok_or(DurationError::Form)?;
    let (_, unit) = UNITS.iter().find(|(known, _)| *known == name).ok_or(DurationError::Form)?;
    let number = |digits: &str| match digits {
        "" => Ok(0_u128),
        digits => digits.parse().map_err(|_| DurationError::Form),
    };
    let scale = 10_u128.pow(u32::try_from(fraction.len()).map_err(|_| DurationError::TooLong)?);
    let fraction = number(fraction)? * unit;
    if !fraction.is_multiple_of(scale) {
        return Err(DurationError::TooFine);
    }
    Ok((number(whole)? * unit + fraction / scale, rest))
}

fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Writes milliseconds, as seconds if they are whole ones.
pub fn print_ms(ms: u64) -> String {
    if ms.is_multiple_of(1_000) { format!("{}s", ms / 1_000) } else { format!("{ms}ms") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn def_2_durations_are_gos() {
        let check = |text: &str, expected| assert_eq!(parse_ms(text), expected, "{text}");
        check("0", Ok(0));
        check("500ms", Ok(500));
        check("1s", Ok(1_000));
        check("1m30s", Ok(90_000));
        check("1.5s", Ok(1_500));
        check(".5s", Ok(500));
        check("2.s", Ok(2_000));
        check("1h", Ok(3_600_000));
        check("+5s", Ok(5_000));
        check("1000000ns", Ok(1));
        check("1000\u{b5}s2000us", Ok(3));
        check("1s1s", Ok(2_000));
        check("1us", Err(DurationError::TooFine));
        check("0.0001s", Err(DurationError::TooFine));
        check("-1s", Err(DurationError::Negative));
        for bad in [
            "", "5", "1", "s", ".s", "5 s", "5d", "5S", "1s ", "1m30", "--1s", "+", "-", "\u{661}s",
        ] {
            check(bad, Err(DurationError::Form));
        }
        check(&format!("{}s", "9".repeat(19)), Err(DurationError::TooLong));
        check("999999999999999999h", Err(DurationError::TooLong));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(ms in 0_u64..u64::MAX / 2) {
            prop_assert_eq!(parse_ms(&print_ms(ms)), if ms >= 1_000_000_000_000_000_000 && ms % 1_000 != 0 {
                Err(DurationError::TooLong)
            } else {
                Ok(ms)
            });
        }

        #[test]
        fn no_text_is_a_danger(text in "[0-9.]{0,22}[nuµmsh]{0,3}[0-9.]{0,22}[nuµmsh]{0,2}") {
            let _ = parse_ms(&text);
        }
    }
}
