//! What can be asked about subscriptions and their consumers, and what it may come to.

use std::sync::Arc;

use reveille_core::consumer::Dialect;
use reveille_core::stream::StreamId;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::subscription::{SubscriptionChange, SubscriptionSpec};
use reveille_core::{StreamPath, Tenant};

use super::engine::{ApplyCallback, CallbackReceipt, Lease, ReleaseLease, RenewLease, WakeOutcome};
use crate::base::engine::Timer;

#[derive(Debug, Clone)]
pub(super) enum Action {
    Create { path: StreamPath, request: Create },
    Append { path: StreamPath, request: Append },
    Delete { path: StreamPath },
    Subscribe(SubscriptionSpec),
    Change { name: Arc<str>, change: SubscriptionChange },
    Unsubscribe { dialect: Dialect, name: Arc<str> },
    EditStreams { name: Arc<str>, add: Vec<StreamPath>, remove: Option<StreamPath> },
    Callback(Box<ApplyCallback>),
    Claim { name: Arc<str>, worker: Arc<str> },
    Renew(RenewLease),
    Release(ReleaseLease),
    RecordOutcomes(Vec<WakeOutcome>),
    Timer(Timer),
}

/// An action with what it appends, and where.
#[derive(Debug, Clone)]
pub(super) struct TokenAction {
    pub(super) tenant: Tenant,
    pub(super) action: Action,
    pub(super) tokens: Vec<(StreamPath, String)>,
}

#[derive(Debug, Clone)]
pub(crate) enum WakeAnswer {
    Created(StreamId),
    Appended,
    Heard(CallbackReceipt),
    Leased(Lease),
    /// As many outcomes were written down.
    Recorded(usize),
    Other,
}

#[derive(Debug, Clone)]
pub(crate) enum WakeError {
    Unavailable,
    TokenExpired,
    InvalidOffset(Arc<str>),
    /// Somebody else is in the way, or an append was refused: asking again may help.
    Conflict,
    Refused,
}

pub(super) type WakeResult = Result<WakeAnswer, WakeError>;
