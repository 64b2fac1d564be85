//! The audit log: who changed what, in rows that hang together.
//!
//! Each tenant has a chain of its own, and what belongs to no tenant has one too. A row's hash is
//! SHA-256 over the hash before it and the row's bytes, so that a row which is changed, removed or
//! put in between shows; how many rows there are and the last hash stand in the head, so that a
//! tail which is cut off shows as well. Old rows go from the beginning: the hash of the last of them
//! stays as the anchor that the first of the others follows.
//!
//! Whoever can write to the disk can make all of it anew. The hash of the head, written down
//! elsewhere, is what tells.

mod diff;

use std::sync::Arc;

pub use diff::Diff;

use aws_lc_rs::digest;

use crate::limits::{
    AUDIT_DIFF_BYTES_MAX, AUDIT_REASON_BYTES_MAX, AUDIT_REQUEST_ID_BYTES_MAX,
    AUDIT_SUBJECT_BYTES_MAX,
};
use crate::tenant::Tenant;
use crate::time::Millis;

/// What can be done that is written down: `what.happened`. That a subscription was made stands in
/// its own record, with who made it.
pub mod action {
    pub const KEY_CREATED: &str = "key.created";
    pub const KEY_REVOKED: &str = "key.revoked";
    pub const SIGNING_KEY_ROTATED: &str = "signing_key.rotated";
    pub const HOOK_CREATED: &str = "hook.created";
    pub const HOOK_UPDATED: &str = "hook.updated";
    pub const HOOK_DELETED: &str = "hook.deleted";
    pub const HOOK_ACTIVATED: &str = "hook.activated";
    pub const HOOK_DEACTIVATED: &str = "hook.deactivated";
    pub const HOOK_PAUSED: &str = "hook.paused";
    pub const HOOK_RESUMED: &str = "hook.resumed";
    pub const HOOK_SECRET_ROTATED: &str = "hook.secret_rotated";
    pub const SUBSCRIPTION_UPDATED: &str = "subscription.updated";
    pub const SUBSCRIPTION_DELETED: &str = "subscription.deleted";
    pub const CONSUMER_WOKEN: &str = "consumer.woken";
    pub const CONSUMER_SOUGHT: &str = "consumer.sought";
    pub const CONSUMER_REVIVED: &str = "consumer.revived";
    pub const DEAD_LETTER_DISCARDED: &str = "dead_letter.discarded";
    pub const DEAD_LETTERS_DISCARDED: &str = "dead_letters.discarded";
    pub const REPLAY_EXECUTED: &str = "replay.executed";
    pub const INDEXES_UPDATED: &str = "indexes.updated";
    pub const RULES_UPDATED: &str = "rules.updated";
    pub const TRIGGER_CREATED: &str = "trigger.created";
    pub const TRIGGER_UPDATED: &str = "trigger.updated";
    pub const TRIGGER_DELETED: &str = "trigger.deleted";
    pub const TRIGGER_ENABLED: &str = "trigger.enabled";
    pub const TRIGGER_DISABLED: &str = "trigger.disabled";
    pub const TRIGGER_DRY_RUN: &str = "trigger.dry_run";
    pub const TRIGGER_DRY_RUN_ENDED: &str = "trigger.dry_run_ended";
    pub const TRIGGER_ROLLED_BACK: &str = "trigger.rolled_back";
    pub const SECRET_CREATED: &str = "secret.created";
    pub const SECRET_ROTATED: &str = "secret.rotated";
    pub const SECRET_REVOKED: &str = "secret.revoked";
    pub const SECRET_DELETED: &str = "secret.deleted";
    pub const TOKEN_ISSUED: &str = "token.issued";
    pub const DOCUMENTS_READ: &str = "documents.read";
    /// Whoever has a token tried what it is not good for, or what the rules deny.
    pub const DOCUMENTS_DENIED: &str = "documents.denied";
    pub const DOCUMENTS_WRITTEN: &str = "documents.written";
}

/// Who asks for something, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actor {
    /// The id of a key, `local` on a server without keys, `server` for what nobody asked for.
    pub name: Arc<str>,
    /// The name that the client gave its request.
    pub request_id: Option<Arc<str>>,
    /// Where the request came from.
    pub ip: Option<Arc<str>>,
    /// Whether the key has signed the request as well.
    pub has_signed: bool,
}

/// Who acts on a server that asks nobody for a key.
pub const LOCAL: &str = "local";

impl Actor {
    /// The server itself.
    pub fn server() -> Actor {
        Actor { name: "server".into(), request_id: None, ip: None, has_signed: false }
    }
}

/// Something that was done. What is longer than it may be is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub actor: Actor,
    /// One of [`action`].
    pub action: Arc<str>,
    /// Whose chain it belongs to; `None` for what concerns all tenants.
    pub tenant: Option<Tenant>,
    /// The id of what it was done to.
    pub subject: Arc<str>,
    pub from_version: Option<u64>,
    pub to_version: Option<u64>,
    /// What has changed, as a JSON object without any secret.
    pub diff: Option<Arc<str>>,
    /// Why, in the words of whoever did it.
    pub reason: Option<Arc<str>>,
}

impl AuditEntry {
    pub fn new(
        actor: Actor,
        action: &str,
        tenant: Option<Tenant>,
        subject: impl Into<Arc<str>>,
    ) -> AuditEntry {
        AuditEntry {
            actor,
            action: action.into(),
            tenant,
            subject: subject.into(),
            from_version: None,
            to_version: None,
            diff: None,
            reason: None,
        }
    }

    /// The same with nothing that is too long. A diff that is too long is left out: a part of it is
    /// no JSON.
    pub fn within_limits(&self) -> AuditEntry {
        let cut_some = |text: &Option<Arc<str>>, max| text.as_deref().map(|text| cut(text, max));
        let actor = Actor {
            name: cut(&self.actor.name, AUDIT_SUBJECT_BYTES_MAX),
            request_id: cut_some(&self.actor.request_id, AUDIT_REQUEST_ID_BYTES_MAX),
            ip: cut_some(&self.actor.ip, AUDIT_REQUEST_ID_BYTES_MAX),
            has_signed: self.actor.has_signed,
        };
        AuditEntry {
            actor,
            subject: cut(&self.subject, AUDIT_SUBJECT_BYTES_MAX),
            diff: self.diff.clone().filter(|diff| diff.len() <= AUDIT_DIFF_BYTES_MAX),
            reason: cut_some(&self.reason, AUDIT_REASON_BYTES_MAX),
            ..self.clone()
        }
    }
}

fn cut(text: &str, max: usize) -> Arc<str> {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default().into()
}

/// A row of the log, but for its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// A number that no other row of the installation has.
    pub id: u64,
    /// Its place in its chain, from 0.
    pub seq: u64,
    pub at: Millis,
    pub entry: AuditEntry,
}

/// What a row and everything before it come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHash(pub [u8; 32]);

impl ChainHash {
    /// What the first row of a chain follows.
    pub const START: ChainHash = ChainHash([0; 32]);

    /// The hash of a row that follows this one.
    pub fn follow(&self, row: &[u8]) -> ChainHash {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.0);
        context.update(row);
        let mut hash = [0; 32];
        hash.copy_from_slice(context.finish().as_ref());
        ChainHash(hash)
    }

    /// As people write it.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// How far a chain reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    /// The first row that is kept.
    pub first: u64,
    /// The hash that it follows.
    pub anchor: ChainHash,
    /// The place of the next row.
    pub next: u64,
    /// The hash of the last row; the anchor if there is none.
    pub hash: ChainHash,
    /// When the last row was written.
    pub last_at: Millis,
}

impl Default for ChainHead {
    fn default() -> ChainHead {
        let (start, last_at) = (ChainHash::START, Millis(0));
        ChainHead { first: 0, anchor: start, next: 0, hash: start, last_at }
    }
}

impl ChainHead {
    /// The head with one more row.
    #[must_use]
    pub fn appended(&self, at: Millis, row: &[u8]) -> ChainHead {
        ChainHead { next: self.next + 1, hash: self.hash.follow(row), last_at: at, ..*self }
    }

    /// The head without its first rows, up to before this place; `hash` is that of the last of them.
    #[must_use]
    pub fn trimmed(&self, first: u64, hash: ChainHash) -> ChainHead {
        ChainHead { first, anchor: hash, ..*self }
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.next.saturating_sub(self.first)
    }
}

/// What does not fit in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainBreak {
    #[error("row {seq} is missing")]
    Missing { seq: u64 },
    #[error("row {seq} is there although its chain has no such place")]
    Extra { seq: u64 },
    #[error("row {seq} is not what was written, or the one before it is not")]
    Changed { seq: u64 },
    #[error("the head is not that of the last row")]
    Head,
}

/// Checks a chain, row by row from the first.
#[derive(Debug, Clone, Copy)]
pub struct ChainCheck {
    head: ChainHead,
    next: u64,
    hash: ChainHash,
}

impl ChainCheck {
    pub fn new(head: ChainHead) -> ChainCheck {
        ChainCheck { head, next: head.first, hash: head.anchor }
    }

    /// The next row that there is, with the hash that stands beside it.
    pub fn row(&mut self, seq: u64, row: &[u8], hash: ChainHash) -> Result<(), ChainBreak> {
        if seq < self.next || seq >= self.head.next {
            return Err(ChainBreak::Extra { seq });
        }
        if seq > self.next {
            return Err(ChainBreak::Missing { seq: self.next });
        }
        if self.hash.follow(row) != hash {
            return Err(ChainBreak::Changed { seq });
        }
        (self.next, self.hash) = (seq + 1, hash);
        Ok(())
    }

    /// There are no more rows.
    pub fn end(&self) -> Result<(), ChainBreak> {
        if self.next < self.head.next {
            return Err(ChainBreak::Missing { seq: self.next });
        }
        if self.hash == self.head.hash { Ok(()) } else { Err(ChainBreak::Head) }
    }
}

#[cfg(test)]
mod tests;
