//! The durable state as it is stored, to be compared before and after a crash.

use std::collections::BTreeMap;

use bytes::Bytes;
use reveille_store::state::Reader;

use super::check::{CheckResult, Violation, violation};

pub(crate) fn unreadable(error: impl std::fmt::Display) -> Violation {
    violation(format!("the state cannot be read: {error}"))
}

/// Everything whose first byte lies in one of these ranges, each without its end.
pub(crate) fn read(reader: &Reader, tags: &[(u8, u8)]) -> CheckResult<Vec<(Bytes, Bytes)>> {
    let mut all = Vec::new();
    for (from, to) in tags {
        all.extend(reader.range(&[*from], &[*to], usize::MAX).map_err(unreadable)?);
    }
    Ok(all)
}

/// A crash changes nothing.
pub(crate) fn compare(
    before: &BTreeMap<Bytes, Bytes>,
    after: &BTreeMap<Bytes, Bytes>,
) -> CheckResult {
    if before == after {
        return Ok(());
    }
    let lost: Vec<_> = before.iter().filter(|(k, v)| after.get(*k) != Some(v)).collect();
    let new: Vec<_> = after.iter().filter(|(k, v)| before.get(*k) != Some(v)).collect();
    Err(violation(format!("after the crash {lost:?} are gone, {new:?} are there")))
}
