//! What rows of the audit log say of facts, and under which names. That a fact was written stands in
//! the fact itself.

use reveille_core::audit::AuditEntry;
use reveille_core::fact::subscription::Wanted;

use crate::app::Txn;

pub(super) const GARDEN_CREATED: &str = "garden.created";
pub(super) const GARDEN_DELETED: &str = "garden.deleted";
pub(super) const MEMBER_ADDED: &str = "garden.member_added";
pub(super) const MEMBER_CHANGED: &str = "garden.member_changed";
pub(super) const MEMBER_REMOVED: &str = "garden.member_removed";
pub(super) const TOKEN_ISSUED: &str = "capability_token.issued";
pub(super) const TOKEN_REVOKED: &str = "capability_token.revoked";
pub(super) const SUBSCRIPTION_CREATED: &str = "fact_subscription.created";
pub(super) const SUBSCRIPTION_DELETED: &str = "fact_subscription.deleted";
pub(super) const SUBSCRIPTION_CANCELLED: &str = "subscription_cancelled_access_revoked";

/// Nothing more is to be said than what the command was asked for.
pub(super) fn describe_nothing<A>(_: &Txn<'_>, _: &A, _: &mut AuditEntry) {}

/// What a subscription is for: what was asked for, without where it is sent, which may be secret.
pub(super) fn describe_subscription(wanted: &Wanted) -> String {
    format!("{} {} ({})", wanted.channel.on_change(), wanted.target, wanted.filter)
}
