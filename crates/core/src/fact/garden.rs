//! Gardens: facts that only members read, and who was a member when.
//!
//! Times of a membership are numbers of the log, from which events and subscriptions have theirs,
//! too: so which came first is never in doubt, and no two happen at once.

use std::fmt;
use std::sync::Arc;

use super::limits::{FORMER_MEMBERSHIPS_MAX, GARDEN_NAME_BYTES_MAX, GARDEN_SLUG_BYTES_MAX};
use super::name::{EntityUri, Scope};
use crate::time::Millis;

/// One incarnation of a garden: one that is deleted and made again under its slug is another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GardenNo(pub u64);

/// The name of a garden in paths.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GardenSlug(Arc<str>);

/// Something of a garden is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GardenError {
    #[error(
        "a garden's slug is 1 to {GARDEN_SLUG_BYTES_MAX} small letters, digits and `-`, and begins \
         with a letter or a digit"
    )]
    Slug,
    #[error("a garden's name is 1 to {GARDEN_NAME_BYTES_MAX} bytes of printable text")]
    Name,
    #[error("a role is one of \"admin\", \"writer\" and \"reader\"")]
    Role,
}

impl GardenSlug {
    /// Reads a slug.
    pub fn parse(text: &str) -> Result<GardenSlug, GardenError> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (1..=GARDEN_SLUG_BYTES_MAX).contains(&text.len());
        if fits && !text.starts_with('-') && text.bytes().all(allowed) {
            Ok(GardenSlug(text.into()))
        } else {
            Err(GardenError::Slug)
        }
    }

    /// Reads a garden as it is spoken of: by its slug, `garden:SLUG`, or `stigmem://…/garden/SLUG`.
    pub fn parse_id(text: &str) -> Result<GardenSlug, GardenError> {
        if let Some(rest) = text.strip_prefix("stigmem://") {
            let (host, slug) = rest.split_once("/garden/").ok_or(GardenError::Slug)?;
            return if host.is_empty() { Err(GardenError::Slug) } else { GardenSlug::parse(slug) };
        }
        GardenSlug::parse(text.strip_prefix("garden:").unwrap_or(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, for whoever keeps it.
    pub fn to_shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for GardenSlug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A garden as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garden {
    pub no: GardenNo,
    pub slug: GardenSlug,
    pub name: Arc<str>,
    /// All of its facts have this one.
    pub scope: Scope,
    /// Who made it.
    pub created_by: EntityUri,
    pub created_at: Millis,
    /// How many of its members are admins now: there is one at least.
    pub admins: u32,
    /// How many members it has now.
    pub members: u32,
}

/// Checks the name of a garden.
pub fn check_name(text: &str) -> Result<(), GardenError> {
    let fits = !text.trim().is_empty() && text.len() <= GARDEN_NAME_BYTES_MAX;
    if fits && !text.chars().any(char::is_control) { Ok(()) } else { Err(GardenError::Name) }
}

/// What somebody is in a garden.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GardenRole {
    /// Says who belongs to it, and writes and reads.
    Admin,
    /// Writes and reads.
    Writer,
    /// Reads.
    Reader,
}

impl GardenRole {
    pub const ALL: [GardenRole; 3] = [GardenRole::Admin, GardenRole::Writer, GardenRole::Reader];

    pub fn as_str(self) -> &'static str {
        match self {
            GardenRole::Admin => "admin",
            GardenRole::Writer => "writer",
            GardenRole::Reader => "reader",
        }
    }

    /// The role of this name.
    pub fn parse(name: &str) -> Result<GardenRole, GardenError> {
        GardenRole::ALL.into_iter().find(|role| role.as_str() == name).ok_or(GardenError::Role)
    }

    /// Whether it writes facts into the garden.
    pub fn writes(self) -> bool {
        matches!(self, GardenRole::Admin | GardenRole::Writer)
    }

    /// Whether it says who belongs to the garden.
    pub fn manages(self) -> bool {
        self == GardenRole::Admin
    }
}

/// Once a member, from when to when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberSpan {
    pub role: GardenRole,
    /// The place in the log, and the time, at which it began.
    pub since: (u64, Millis),
    /// The same of its end.
    pub until: (u64, Millis),
}

/// Everything about somebody in one garden.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// What they are, and since when.
    pub current: Option<(GardenRole, (u64, Millis))>,
    /// What they were before, oldest first.
    pub former: Vec<MemberSpan>,
}

/// What a membership means for a subscription that began at a place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Member(GardenRole),
    /// They were a member after the subscription began, and are not any more.
    Ended,
    /// They were none since the subscription began.
    Never,
}

impl Membership {
    /// Somebody becomes a member at a place of the log; `None` if they are one already.
    #[must_use]
    pub fn joined(&self, role: GardenRole, at: (u64, Millis)) -> Option<Membership> {
        let is_new = self.current.is_none();
        is_new.then(|| Membership { current: Some((role, at)), former: self.former.clone() })
    }

    /// They are a member no longer; `None` if they are none. Of what was long ago, only the latest
    /// is kept.
    #[must_use]
    pub fn left(&self, until: (u64, Millis)) -> Option<Membership> {
        let (role, since) = self.current?;
        let mut former = self.former.clone();
        former.push(MemberSpan { role, since, until });
        let surplus = former.len().saturating_sub(FORMER_MEMBERSHIPS_MAX);
        former.drain(..surplus);
        Some(Membership { current: None, former })
    }

    /// What they are in the garden, for a subscription that began at `since`. `closed` is where the
    /// garden was deleted, which ended all memberships.
    pub fn standing(&self, since: u64, closed: Option<u64>) -> Standing {
        let ended = self.former.last().map(|span| span.until.0);
        let ended = match (self.current, closed) {
            (Some((role, _)), None) => return Standing::Member(role),
            (Some(_), Some(closed)) => Some(closed),
            (None, _) => ended,
        };
        if ended.is_some_and(|ended| ended >= since) { Standing::Ended } else { Standing::Never }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_plain_words() {
        for good in ["a", "atlas", "0-9", &"x".repeat(63)] {
            assert_eq!(GardenSlug::parse(good).unwrap().as_str(), good);
            assert_eq!(GardenSlug::parse_id(&format!("garden:{good}")).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "A", "a_b", "a b", "a/b", "é", &"x".repeat(64)] {
            assert_eq!(GardenSlug::parse(bad), Err(GardenError::Slug), "{bad}");
        }
        assert_eq!(
            GardenSlug::parse_id("stigmem://co.example/garden/atlas").unwrap().as_str(),
            "atlas"
        );
        for bad in ["stigmem://co.example/atlas", "stigmem:///garden/atlas", "stigmem://co/garden/"]
        {
            assert_eq!(GardenSlug::parse_id(bad), Err(GardenError::Slug), "{bad}");
        }
        assert_eq!(check_name("Atlas"), Ok(()));
        for bad in ["", " ", "a\n", &"x".repeat(257)] {
            assert_eq!(check_name(bad), Err(GardenError::Name), "{bad:?}");
        }
    }

    #[test]
    fn roles_say_who_reads_writes_and_manages() {
        let table = GardenRole::ALL.map(|it| (it.as_str(), it.writes(), it.manages()));
        assert_eq!(
            table,
            [("admin", true, true), ("writer", true, false), ("reader", false, false)]
        );
        assert!(GardenRole::ALL.into_iter().all(|it| GardenRole::parse(it.as_str()) == Ok(it)));
        assert_eq!(GardenRole::parse("owner"), Err(GardenError::Role));
    }

    fn at(number: u64) -> (u64, Millis) {
        (number, Millis(number))
    }

    #[test]
    fn a_membership_stands_by_its_current_span_and_its_latest_end() {
        let none = Membership::default();
        assert_eq!(none.standing(10, None), Standing::Never);
        assert_eq!(none.left(at(1)), None);
        let member = none.joined(GardenRole::Reader, at(5)).unwrap();
        assert_eq!(member.joined(GardenRole::Admin, at(6)), None);
        assert_eq!(member.standing(10, None), Standing::Member(GardenRole::Reader));
        assert_eq!(member.standing(3, None), Standing::Member(GardenRole::Reader));
        // Deleting the garden ends it, for whoever subscribed before.
        assert_eq!(member.standing(10, Some(12)), Standing::Ended);
        assert_eq!(member.standing(10, Some(9)), Standing::Never);
        let left = member.left(at(20)).unwrap();
        for (since, expected) in
            [(10, Standing::Ended), (20, Standing::Ended), (21, Standing::Never)]
        {
            assert_eq!(left.standing(since, None), expected, "{since}");
            assert_eq!(left.standing(since, Some(99)), expected, "{since}");
        }
        let again = left.joined(GardenRole::Writer, at(30)).unwrap();
        assert_eq!(again.standing(10, None), Standing::Member(GardenRole::Writer));
        assert_eq!(again.former, left.former);
    }

    #[test]
    fn whoever_comes_and_goes_has_a_record_that_does_not_grow() {
        let mut membership = Membership::default();
        for turn in 0..1_000 {
            membership = membership.joined(GardenRole::Reader, at(turn * 2)).unwrap();
            membership = membership.left(at(turn * 2 + 1)).unwrap();
        }
        assert_eq!(membership.former.len(), FORMER_MEMBERSHIPS_MAX);
        assert_eq!(membership.standing(1_999, None), Standing::Ended);
        assert_eq!(membership.standing(2_000, None), Standing::Never);
    }
}
