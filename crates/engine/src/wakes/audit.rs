//! What rows of the audit log say of subscriptions and of what operators do to consumers.

use std::sync::Arc;

use reveille_core::audit::{AuditEntry, Diff};
use reveille_core::consumer::{Dialect, SyncDone};
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{Subscription, Target};
use reveille_core::{Offset, StreamPath};

use super::index::SubscriptionIndex;
use super::operate::ConsumerMove;
use crate::app::Txn;

/// A subscription has become this.
pub(super) fn describe_change(txn: &Txn<'_>, after: &Arc<Subscription>, entry: &mut AuditEntry) {
    let (dialect, name) = (after.spec.dialect, &after.spec.name);
    let before = SubscriptionIndex::of_txn(txn).named(&after.tenant, dialect, name);
    entry.diff = before.and_then(|before| subscription_diff(Some(before), Some(after)).text());
}

/// The subscription that a row is about has ended.
pub(super) fn describe_end(txn: &Txn<'_>, dialect: Dialect, entry: &mut AuditEntry) {
    let Some(tenant) = &entry.tenant else { return };
    let before = SubscriptionIndex::of_txn(txn).named(tenant, dialect, &entry.subject);
    entry.diff = before.and_then(|before| subscription_diff(Some(before), None).text());
}

/// What is said of a subscription in words, and in numbers.
type TextField = fn(&Subscription) -> Option<&str>;
type NumberField = fn(&Subscription) -> Option<u64>;

fn subscription_diff(from: Option<&Subscription>, to: Option<&Subscription>) -> Diff {
    let texts: [(&str, TextField); 4] = [
        ("pattern", |it| it.spec.pattern.as_ref().map(Pattern::as_str)),
        ("description", |it| it.spec.description.as_deref()),
        ("wake_if", |it| it.spec.coalescing.wake_if.as_deref()),
        ("sync_done", |it| Some(sync_done(it.spec.coalescing.sync_done))),
    ];
    let numbers: [(&str, NumberField); 5] = [
        ("min_interval_ms", |it| Some(it.spec.coalescing.min_interval_ms)),
        ("max_delay_ms", |it| it.spec.coalescing.max_delay_ms),
        ("retry.initial_ms", |it| it.spec.retry.initial_ms),
        ("retry.max_ms", |it| it.spec.retry.max_ms),
        ("retry.give_up_after_ms", |it| it.spec.retry.give_up_after_ms),
    ];
    let mut diff = Diff::default().address("webhook", from.and_then(webhook), to.and_then(webhook));
    for (name, value) in texts {
        diff = diff.field(name, from.and_then(value), to.and_then(value));
    }
    for (name, value) in numbers {
        diff = diff.field(name, from.and_then(value), to.and_then(value));
    }
    let paused = |it: Option<&Subscription>| it.map(|it| it.paused_at.is_some());
    let secret = |it: Option<&Subscription>| it.and_then(|it| it.secret.clone());
    diff.field("paused", paused(from), paused(to)).secret("secret", secret(from), secret(to))
}

fn webhook(it: &Subscription) -> Option<&str> {
    match &it.spec.target {
        Target::Webhook(url) => Some(url),
        Target::Pull(_) => None,
    }
}

fn sync_done(it: SyncDone) -> &'static str {
    match it {
        SyncDone::Tail => "tail",
        SyncDone::Snapshot => "snapshot",
    }
}

/// A consumer was moved by an operator: of each stream, from which position to which.
pub(super) fn describe_order(_: &Txn<'_>, moved: &ConsumerMove, entry: &mut AuditEntry) {
    let (from, to) = moved.epoch;
    let (was, is) = moved.given_up;
    let diff = Diff::default().field("epoch", from, to).field("given_up", was, is);
    let text = |at: Option<Offset>| at.map_or("-1".to_owned(), |at| at.to_string());
    let place = |diff: Diff, (path, from, to): &(StreamPath, Option<Offset>, Option<Offset>)| {
        diff.field(path.as_str(), text(*from), text(*to))
    };
    entry.diff = moved.streams.iter().fold(diff, place).text();
}
