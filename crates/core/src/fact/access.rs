//! Who may do what with facts, now: asked when something is read or written, when a subscription is
//! made, and again before each of its deliveries.
//!
//! ```text
//! at a delivery           token ── valid ──▶ key, scope ── granted ──▶ garden ── member ──▶ content
//!                           │                    │                       │ ended     never
//!                           ▼                    ▼                       ▼             ▼
//!                         cancel               cancel                  cancel        withhold
//! ```

use super::garden::{GardenRole, Standing};
use super::name::{EntityUri, Scope, ScopeId};
use super::principal::Principal;
use super::token::TokenStanding;

/// What is looked at, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// The subscriber's capability token.
    Token,
    /// The subscriber's key.
    Key,
    /// What the key reads.
    Scope,
    /// Who belongs to the garden of what is delivered.
    Garden,
}

impl Check {
    pub const ALL: [Check; 4] = [Check::Token, Check::Key, Check::Scope, Check::Garden];

    /// The word that the world knows it by.
    pub fn code(self) -> &'static str {
        match self {
            Check::Token => "token",
            Check::Key => "key",
            Check::Scope => "scope",
            Check::Garden => "garden",
        }
    }
}

/// Why a subscription is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CancelReason {
    TokenRevoked,
    TokenExpired,
    TokenUnknown,
    /// The key is revoked, does not read any more, or is somebody else's.
    KeyRevoked,
    /// The key does not read the scope any more.
    ScopeRevoked,
    /// The subscriber belongs to the garden no longer.
    MembershipEnded,
}

impl CancelReason {
    pub const ALL: [CancelReason; 6] = [
        CancelReason::TokenRevoked,
        CancelReason::TokenExpired,
        CancelReason::TokenUnknown,
        CancelReason::KeyRevoked,
        CancelReason::ScopeRevoked,
        CancelReason::MembershipEnded,
    ];

    /// The word that the world knows it by.
    pub fn code(self) -> &'static str {
        match self {
            CancelReason::TokenRevoked => "token_revoked",
            CancelReason::TokenExpired => "token_expired",
            CancelReason::TokenUnknown => "token_invalid",
            CancelReason::KeyRevoked
            | CancelReason::ScopeRevoked
            | CancelReason::MembershipEnded => "acl_revoked",
        }
    }

    /// The check that decided.
    pub fn check(self) -> Check {
        match self {
            CancelReason::TokenRevoked
            | CancelReason::TokenExpired
            | CancelReason::TokenUnknown => Check::Token,
            CancelReason::KeyRevoked => Check::Key,
            CancelReason::ScopeRevoked => Check::Scope,
            CancelReason::MembershipEnded => Check::Garden,
        }
    }

    /// The same in a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            CancelReason::TokenRevoked => "the subscriber's capability token was revoked",
            CancelReason::TokenExpired => "the subscriber's capability token has expired",
            CancelReason::TokenUnknown => "the subscriber's capability token is not known",
            CancelReason::KeyRevoked => {
                "the subscriber's key was revoked or does not read any more"
            }
            CancelReason::ScopeRevoked => "the subscriber's key does not read the scope any more",
            CancelReason::MembershipEnded => {
                "the subscriber does not belong to the garden any more"
            }
        }
    }
}

/// Everything that a delivery rests on, as it is at one place of the log.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Who has subscribed.
    pub subscriber: &'a EntityUri,
    pub token: TokenStanding,
    /// Whoever holds the key by which the subscription was made; `None` once that is revoked.
    pub principal: Option<&'a Principal>,
    /// What the subscription is limited to.
    pub scope: &'a ScopeId,
    /// What the subscriber is in the garden of what is delivered, if that is in one.
    pub garden: Option<Standing>,
}

/// Whether something is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ruling {
    /// It may be read and delivered.
    Deliver,
    /// The subscriber never might read this, and may read other things.
    Withhold(Check),
    /// The subscriber was allowed, and is not any more.
    Cancel(CancelReason),
}

impl Ruling {
    /// The check that decided; `None` if all were passed.
    pub fn check(self) -> Option<Check> {
        match self {
            Ruling::Deliver => None,
            Ruling::Withhold(check) => Some(check),
            Ruling::Cancel(reason) => Some(reason.check()),
        }
    }

    /// The same in a sentence.
    pub fn sentence(self) -> &'static str {
        match self {
            Ruling::Deliver => "the token is valid, and the subscriber may read this",
            Ruling::Withhold(_) => "this is in a garden that the subscriber does not belong to",
            Ruling::Cancel(reason) => reason.sentence(),
        }
    }
}

/// What comes of a delivery, or of an event that is replayed. The first check that fails decides,
/// and nothing after it is looked at.
pub fn rule(look: &Look<'_>) -> Ruling {
    match look.token {
        TokenStanding::Valid => {}
        TokenStanding::Revoked => return Ruling::Cancel(CancelReason::TokenRevoked),
        TokenStanding::Expired => return Ruling::Cancel(CancelReason::TokenExpired),
        TokenStanding::Unknown => return Ruling::Cancel(CancelReason::TokenUnknown),
    }
    let stands = |it: &&Principal| it.reads && it.entity == *look.subscriber;
    let Some(principal) = look.principal.filter(stands) else {
        return Ruling::Cancel(CancelReason::KeyRevoked);
    };
    if !principal.may_follow(look.scope) {
        return Ruling::Cancel(CancelReason::ScopeRevoked);
    }
    match look.garden {
        None | Some(Standing::Member(_)) => Ruling::Deliver,
        Some(Standing::Ended) => Ruling::Cancel(CancelReason::MembershipEnded),
        Some(Standing::Never) => Ruling::Withhold(Check::Garden),
    }
}

/// What somebody is in a garden now: a member with a role, or none.
pub type Member = Option<GardenRole>;

/// Whether somebody may read a fact of a scope; `garden` says what they are in its garden, if it is
/// in one.
pub fn may_read(principal: &Principal, scope: Scope, garden: Option<Member>) -> bool {
    match garden {
        Some(member) => principal.reads && member.is_some(),
        None => principal.may_read(scope),
    }
}

/// Whether somebody may subscribe to what a scope id means; `garden` says what they are in the
/// garden, if it is one.
pub fn may_follow(principal: &Principal, scope: &ScopeId, garden: Option<Member>) -> bool {
    principal.may_follow(scope) && garden.is_none_or(|member| member.is_some())
}

/// Why a fact is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteDenied {
    #[error("writing facts needs a key with the permission `write`")]
    Permission,
    #[error("only admins and writers of a garden write into it; have one of its admins add you")]
    Role,
    #[error("the scope of a garden's fact is the garden's own, which is \"{0}\"")]
    Scope(Scope),
}

/// Whether somebody may write a fact of a scope; `garden` is the scope of its garden and what they
/// are there. Whoever is no member learns nothing of the garden, not even its scope.
pub fn check_write(
    principal: &Principal,
    scope: Scope,
    garden: Option<(Scope, Member)>,
) -> Result<(), WriteDenied> {
    if !principal.writes {
        return Err(WriteDenied::Permission);
    }
    let Some((own, member)) = garden else { return Ok(()) };
    if !member.is_some_and(GardenRole::writes) {
        return Err(WriteDenied::Role);
    }
    if own == scope { Ok(()) } else { Err(WriteDenied::Scope(own)) }
}

/// Whether somebody says who belongs to a garden: its admins do, and whoever runs the tenant.
pub fn may_manage(principal: &Principal, member: Member) -> bool {
    principal.writes && (principal.is_admin || member.is_some_and(GardenRole::manages))
}

#[cfg(test)]
mod tests;
