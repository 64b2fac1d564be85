//! Changes: what every committed write becomes, for whoever is to be told.

use std::fmt;
use std::str::FromStr;

use super::origin::Origin;
use super::path::DocumentPath;
use super::snapshot::Document;
use crate::delivery::hook::FaceId;
use crate::tenant::Tenant;
use crate::time::Millis;

/// The face of changes of documents.
pub const FACE: FaceId = FaceId(0x05);

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    Create,
    Update,
    Delete,
}

/// One document before and after one write.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub kind: ChangeKind,
    pub path: DocumentPath,
    /// `None` if there was none, or its tombstone.
    pub before: Option<Document>,
    /// `None` if it was deleted.
    pub after: Option<Document>,
    /// The place of the write in its transaction.
    pub ordinal: usize,
}

/// A change in the log of its tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeEvent {
    /// One more than that of the tenant's change before.
    pub seq: u64,
    pub lsn: Lsn,
    pub tenant: Tenant,
    /// Whose doing it is: a client's, or that of triggers.
    pub origin: Origin,
    pub change: Change,
}

/// `1697041234:42`: the second of a commit, and which change of that second it is, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn {
    pub second: u64,
    pub ordinal: u64,
}

/// The text is no [`Lsn`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an lsn is seconds and a number with a colon between them, like `1697041234:42`")]
pub struct LsnError;

/// The last change of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeHead {
    /// Zero before the first.
    pub seq: u64,
    pub lsn: Option<Lsn>,
    /// The last change before the tenant's rules were last set, or taken away; none if there never
    /// were any.
    pub rules_seq: Option<u64>,
}

impl ChangeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Create => "create",
            ChangeKind::Update => "update",
            ChangeKind::Delete => "delete",
        }
    }

    pub fn parse(text: &str) -> Option<ChangeKind> {
        let kinds = [ChangeKind::Create, ChangeKind::Update, ChangeKind::Delete];
        kinds.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl ChangeEvent {
    /// Seconds since 1970: those of its lsn, and so never less than those of a change before.
    pub fn ts(&self) -> u64 {
        self.lsn.second
    }
}

impl Lsn {
    /// The next one, always later: while the clock stands still, or is behind, it counts on in the
    /// last second that there was.
    pub fn next(last: Option<Lsn>, now: Millis) -> Lsn {
        let second = now.0 / 1_000;
        match last {
            Some(last) if last.second >= second => {
                Lsn { second: last.second, ordinal: last.ordinal + 1 }
            }
            _ => Lsn { second, ordinal: 0 },
        }
    }
}

impl ChangeHead {
    /// Gives the changes of one transaction their places, one after another.
    pub fn number(
        &mut self,
        tenant: &Tenant,
        now: Millis,
        origin: &Origin,
        changes: Vec<Change>,
    ) -> Vec<ChangeEvent> {
        let numbered = changes.into_iter().map(|change| {
            let lsn = Lsn::next(self.lsn, now);
            *self = ChangeHead { seq: self.seq + 1, lsn: Some(lsn), ..*self };
            let (tenant, origin) = (tenant.clone(), origin.clone());
            ChangeEvent { seq: self.seq, lsn, tenant, origin, change }
        });
        numbered.collect()
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.second, self.ordinal)
    }
}

impl FromStr for Lsn {
    type Err = LsnError;

    fn from_str(text: &str) -> Result<Lsn, LsnError> {
        let number = |text: &str| {
            let is_plain = text == "0" || !text.starts_with('0');
            let is_plain = is_plain && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain).ok_or(LsnError)
        };
        let (second, ordinal) = text.split_once(':').ok_or(LsnError)?;
        Ok(Lsn { second: number(second)?, ordinal: number(ordinal)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_lsn_is_seconds_and_a_number() {
        let lsn = Lsn { second: 1_697_041_234, ordinal: 42 };
        assert_eq!(lsn.to_string(), "1697041234:42");
        assert_eq!("1697041234:42".parse(), Ok(lsn));
        for bad in ["", ":", "1", "1:", ":1", "1:2:3", "+1:2", "01:2", "1:02", "a:1", "-1:1"] {
            assert_eq!(bad.parse::<Lsn>(), Err(LsnError), "{bad}");
        }
    }

    #[test]
    fn a_new_second_begins_at_zero_and_an_old_one_never() {
        let first = Lsn::next(None, Millis(5_999));
        assert_eq!(first.to_string(), "5:0");
        assert_eq!(Lsn::next(Some(first), Millis(5_000)).to_string(), "5:1");
        assert_eq!(Lsn::next(Some(first), Millis(0)).to_string(), "5:1");
        assert_eq!(Lsn::next(Some(first), Millis(6_000)).to_string(), "6:0");
    }

    proptest! {
        #[test]
        fn changes_are_numbered_upwards_whatever_the_clock_does(
            transactions in prop::collection::vec((0u64..4_000, 1usize..4), 1..20),
        ) {
            let tenant = Tenant::parse("acme").unwrap();
            let path = DocumentPath::parse("rooms/r1").unwrap();
            let mut head = ChangeHead::default();
            let mut events = Vec::new();
            for (now, count) in transactions {
                let change = |ordinal| Change {
                    kind: ChangeKind::Create, path: path.clone(), before: None, after: None, ordinal,
                };
                let changes = (0..count).map(change).collect();
                events.extend(head.number(&tenant, Millis(now), &Origin::CLIENT, changes));
            }
            for (at, event) in (1..).zip(&events) {
                prop_assert_eq!(event.seq, at);
                prop_assert_eq!(event.lsn.to_string().parse(), Ok(event.lsn));
            }
            prop_assert!(events.windows(2).all(|pair| pair[0].lsn < pair[1].lsn));
            prop_assert!(events.windows(2).all(|pair| pair[0].ts() <= pair[1].ts()));
        }
    }
}
