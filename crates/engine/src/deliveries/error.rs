//! What can be wrong with what is asked of hooks and deliveries.

use reveille_kernel::error::Error;

/// Why something was not done with a hook or a delivery.
pub type DeliveryError = Error<DeliveryRejection>;

/// Why something cannot be done with a hook or a delivery.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryRejection {
    #[error("there is no subscription with this id")]
    NotFound,
    /// A hook that no two may have alike is there already.
    #[error("Subscription already exists for this worker/pattern/method combination")]
    Exists,
    /// Its tenant has as many hooks as it may have.
    #[error(
        "there are {max} hooks of this tenant (subscriptions to events and facts, and triggers), and \
         there may be no more (--max-hooks); delete one first"
    )]
    TooManyHooks { max: usize },
    /// Events from before are still being told, and so many patterns are kept for them.
    #[error(
        "the pattern was changed often while older events are still being handed out; try again in \
         a moment"
    )]
    PatternBusy,
    #[error(
        "this subscription has no secret that could be rotated; PUT it with {{\"secret\": true}} to \
         give it one"
    )]
    NoSecret,
    #[error("there is no event with this id")]
    NoEvent,
    /// There is no such dead letter, or it was made again already.
    #[error("there is no dead letter with this id; it may have been retried already")]
    NoDeadLetter,
    /// What a preview has shown is not so any more.
    #[error(
        "the preview is too old, was used, or its dead letters have changed since; make another \
         one (\"dryRun\": true) and quote its previewId"
    )]
    PreviewStale,
    #[error(
        "there are more than {max} dead letters to look through; name a hook, or a shorter time \
         (`from`, `to`)"
    )]
    TooManyDeadLetters { max: usize },
    #[error(
        "the subscription {hook} is not active; reactivate it before its dead letters are replayed \
         (a trigger: enable it)"
    )]
    HookInactive { hook: std::sync::Arc<str> },
    /// Its dead letters have outlived it.
    #[error(
        "the subscription or trigger {hook} has ended: its dead letters can be looked at and discarded, not \
         replayed"
    )]
    HookGone { hook: std::sync::Arc<str> },
    /// Its policy keeps no former versions.
    #[error(
        "`useOriginalVersion` is for hooks whose former versions are kept, and those of {hook} are \
         not; leave it out: its dead letters are replayed by the subscription as it is now"
    )]
    NoVersions { hook: std::sync::Arc<str> },
}

impl From<DeliveryRejection> for DeliveryError {
    fn from(rejection: DeliveryRejection) -> DeliveryError {
        Error::Rejected(rejection)
    }
}
