//! What can be wrong with what is asked of facts.

use std::sync::Arc;

use reveille_core::fact::access::WriteDenied;
use reveille_core::fact::name::NameError;
use reveille_core::fact::token::CapabilityError;
use reveille_kernel::error::Error;

use super::limits::{GARDEN_MEMBERS_MAX, GARDENS_MAX, GARDENS_OF_MEMBER_MAX, TOKENS_MAX};

/// Why something was not done with facts.
pub type FactError = Error<FactRejection>;

/// Why something cannot be done with facts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FactRejection {
    #[error(transparent)]
    Name(#[from] NameError),
    /// The caller may not write this, or not there.
    #[error(transparent)]
    WriteDenied(#[from] WriteDenied),
    #[error("reading facts needs a key with the permission `read`")]
    ReadDenied,
    #[error("there is no fact with this id")]
    FactNotFound,
    /// It is there, and not for the caller.
    #[error("this fact is in a scope or a garden that you may not read")]
    FactForbidden,
    #[error("there is no card of this entity in this scope; refresh it first")]
    CardNotFound,
    #[error("your key does not read the scope \"{0}\"")]
    ScopeForbidden(Arc<str>),
    #[error("there is no garden \"{0}\"")]
    GardenNotFound(Arc<str>),
    #[error("there is a garden \"{0}\" already; choose another slug")]
    GardenExists(Arc<str>),
    #[error("you do not belong to this garden; have one of its admins add you")]
    NotMember,
    #[error("only the admins of a garden, and of the tenant, say who belongs to it")]
    NotGardenAdmin,
    #[error("somebody must be admin of the garden; make another member one first")]
    LastAdmin,
    #[error("{0} belongs to this garden already")]
    MemberExists(Arc<str>),
    #[error("{0} does not belong to this garden")]
    MemberNotFound(Arc<str>),
    #[error("a tenant has at most {GARDENS_MAX} gardens; delete some that nobody needs")]
    TooManyGardens,
    #[error("a garden has at most {GARDEN_MEMBERS_MAX} members; remove some first")]
    TooManyMembers,
    #[error("nobody belongs to more than {GARDENS_OF_MEMBER_MAX} gardens; leave some first")]
    TooManyGardensOfMember,
    #[error("only admins of the tenant issue and revoke capability tokens")]
    NotAdmin,
    #[error(
        "a tenant has at most {TOKENS_MAX} capability tokens; revoke some, or wait for old ones"
    )]
    TooManyTokens,
    #[error("there is no capability token with this id")]
    TokenNotFound,
    #[error("this capability token was revoked already")]
    TokenRevoked,
    #[error(transparent)]
    Capability(#[from] CapabilityError),
    /// The caller may not read what the subscription would be for.
    #[error("you may not read what this subscription would be for")]
    InsufficientScope,
    #[error("the key was revoked")]
    KeyRevoked,
    /// It could not be looked at with each delivery.
    #[error(
        "a key of all tenants cannot be looked at again with each delivery; subscribe with a key of \
         the tenant"
    )]
    KeyElsewhere,
    #[error("there is no subscription with this id")]
    SubscriptionNotFound,
    #[error(
        "there are {max} subscriptions of this tenant, and there may be no more (--max-hooks); \
         delete one first"
    )]
    TooManySubscriptions { max: usize },
    /// What came after it can no longer be told from what came before.
    #[error(
        "this event is not, or no longer, among those that can be replayed; leave `after` out to \
         begin with the oldest one"
    )]
    EventNotFound,
    #[error("the cursor is not one that a page before this one has given")]
    Cursor,
}

impl From<FactRejection> for FactError {
    fn from(rejection: FactRejection) -> FactError {
        Error::Rejected(rejection)
    }
}
