//! Milliseconds since 1970, and the one text form that the protocol gives them (RFC 3339).

use std::ops::Add;

/// A moment: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Millis(pub u64);

impl Millis {
    /// Later than anything that happens.
    pub const NEVER: Millis = Millis(u64::MAX);

    /// Milliseconds from `earlier` to `self`, zero if `earlier` is later.
    pub fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `seconds` after this one.
    pub fn plus_seconds(self, seconds: u64) -> Millis {
        Millis(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// Reads an RFC 3339 timestamp (`2026-01-01T00:00:00Z`, fractions and offsets allowed).
    /// A moment before 1970 becomes 1970.
    pub fn parse_rfc3339(text: &str) -> Option<Millis> {
        parse_rfc3339(text.as_bytes())
    }

    /// Writes an RFC 3339 timestamp, as JavaScript's `toISOString` does.
    pub fn to_rfc3339(self) -> String {
        let (days, rest) = (self.0 / 86_400_000, self.0 % 86_400_000);
        let (year, month, day) = civil_from_days(days);
        let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
        let (second, millis) = (rest / 1_000 % 60, rest % 1_000);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl Add<u64> for Millis {
    type Output = Millis;
    fn add(self, millis: u64) -> Millis {
        Millis(self.0.saturating_add(millis))
    }
}

/// Walks over the bytes of a timestamp.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        let mut value = 0i64;
        for byte in head {
            if !byte.is_ascii_digit() {
                return None;
            }
            value = value * 10 + i64::from(byte - b'0');
        }
        self.rest = rest;
        Some(value)
    }

    fn one_of(&mut self, allowed: &[u8]) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        if !allowed.contains(first) {
            return None;
        }
        self.rest = rest;
        Some(*first)
    }

    /// `.123456` as whole milliseconds; absent is zero.
    fn fraction_ms(&mut self) -> Option<i64> {
        if self.one_of(b".").is_none() {
            return Some(0);
        }
        let count = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return None;
        }
        let (digits, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        let mut millis = 0;
        let mut unit = 100;
        for byte in digits.iter().take(3) {
            millis += i64::from(byte - b'0') * unit;
            unit /= 10;
        }
        Some(millis)
    }

    /// `Z` or `+02:00`, as minutes east of Greenwich.
    fn zone_minutes(&mut self) -> Option<i64> {
        match self.one_of(b"Zz+-")? {
            b'Z' | b'z' => Some(0),
            sign => {
                let hours = self.digits(2)?;
                self.one_of(b":")?;
                let minutes = self.digits(2)?;
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let total = hours * 60 + minutes;
                Some(if sign == b'-' { -total } else { total })
            }
        }
    }
}

fn parse_rfc3339(text: &[u8]) -> Option<Millis> {
    let mut cursor = Cursor { rest: text };
    let year = cursor.digits(4)?;
    cursor.one_of(b"-")?;
    let month = cursor.digits(2)?;
    cursor.one_of(b"-")?;
    let day = cursor.digits(2)?;
    cursor.one_of(b"Tt ")?;
    let hour = cursor.digits(2)?;
    cursor.one_of(b":")?;
    let minute = cursor.digits(2)?;
    cursor.one_of(b":")?;
    let second = cursor.digits(2)?;
    let fraction = cursor.fraction_ms()?;
    let zone = cursor.zone_minutes()?;
    let valid = cursor.rest.is_empty()
        && (1..=12).contains(&month)
        && (1..=days_in_month(year, month)).contains(&day)
        && hour <= 23
        && minute <= 59
        && second <= 60;
    if !valid {
        return None;
    }
    let days = days_from_civil(year, month, day);
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - zone * 60;
    Some(Millis(u64::try_from(seconds * 1_000 + fraction).unwrap_or(0)))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the proleptic Gregorian calendar, counting years from March so that
/// the leap day is the last of its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Undoes [`days_from_civil`]: year, month and day of a day since 1970-01-01.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1_460 + day_of_era / 146_096;
    let year_of_era = (day_of_era + day_of_era / 36_524 - leap_days) / 365;
    let year_start = 365 * year_of_era + year_of_era / 4 - year_of_era / 100;
    let day_of_year = day_of_era - year_start;
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

const TIME_UNITS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads a length of time, written `500ms`, `45s`, `10m`, `1h` or `3d`, as milliseconds.
pub fn parse_period_ms(text: &str) -> Option<u64> {
    measure(text, &TIME_UNITS)
}

/// A whole number with one of the units behind it.
pub fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let split = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(split.unwrap_or(text.len()));
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<u64>) {
        assert_eq!(Millis::parse_rfc3339(text).map(|at| at.0), expected, "{text}");
    }

    #[test]
    fn timestamps_with_and_without_zone_and_fraction() {
        check("1970-01-01T00:00:00Z", Some(0));
        check("2000-02-29T12:00:00Z", Some(951_825_600_000));
        check("2026-11-15T21:00:00.250Z", Some(1_794_776_400_250));
        check("2026-11-15T23:00:00.25+02:00", Some(1_794_776_400_250));
        check("2026-11-15T16:00:00-05:00", Some(1_794_776_400_000));
        check("1969-12-31T23:00:00Z", Some(0));
    }

    #[test]
    fn what_is_written_reads_back() {
        assert_eq!(Millis(951_825_600_007).to_rfc3339(), "2000-02-29T12:00:00.007Z");
        assert_eq!(Millis(0).to_rfc3339(), "1970-01-01T00:00:00.000Z");
        for day in 0..=366 * 230 {
            let at = Millis(day * 86_400_000 + 86_399_999);
            assert_eq!(Millis::parse_rfc3339(&at.to_rfc3339()), Some(at), "{day}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "tomorrow",
            "2026-13-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00Z ",
            "26-01-01T00:00:00Z",
            "2026-01-01T00:00:00+0200",
        ] {
            check(text, None);
        }
    }
}
