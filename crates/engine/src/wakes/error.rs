//! What can be wrong with what is asked of subscriptions and consumers.

use std::sync::Arc;

use reveille_core::consumer;
use reveille_core::stream;
use reveille_core::subscription::SubscriptionSpecError;
use reveille_kernel::error::Error;

/// Why something was not done with a subscription or a consumer.
pub type WakeError = Error<WakeRejection>;

/// Why something cannot be done with a subscription or a consumer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WakeRejection {
    /// The consumer does not allow it.
    #[error(transparent)]
    Consumer(#[from] consumer::Rejected),
    /// The name is taken by a subscription that was asked for differently.
    #[error(
        "a subscription with this id exists and was made with other settings; delete it first, or \
         choose another id"
    )]
    Exists,
    #[error("there is no subscription with this id")]
    NotFound,
    /// There can be no such subscription.
    #[error(transparent)]
    Spec(#[from] SubscriptionSpecError),
    /// The subscription has no consumer for a stream.
    #[error(
        "the subscription has no consumer for {path}: there is no such stream, or its pattern does \
         not match it"
    )]
    NoConsumer { path: Arc<str> },
    /// The token is none of ours, or for something else.
    #[error("the token is not valid here; use the one from the last notification or answer")]
    TokenInvalid,
    /// The token has expired; its consumer is still the same.
    #[error("the token has expired; repeat the request with the one in this answer")]
    TokenExpired,
    /// Something is to be appended together with acks, and cannot be.
    #[error("{path}: {why}; nothing of this callback was applied")]
    Append { path: Arc<str>, why: Box<stream::Rejected> },
    /// Its tenant has as many subscriptions as it may have.
    #[error(
        "there are {max} subscriptions of this tenant, and there may be no more \
         (--max-subscriptions); delete one first"
    )]
    TooManySubscriptions { max: usize },
    /// A subscription names more streams than it may.
    #[error("a subscription names at most {max} streams")]
    TooManyStreams { max: usize },
}

impl From<WakeRejection> for WakeError {
    fn from(rejection: WakeRejection) -> WakeError {
        Error::Rejected(rejection)
    }
}
