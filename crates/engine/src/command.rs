//! Commands: what can be asked of a partition. Each is one pure decision over the keys it reads.

pub mod append;
pub mod create;
pub mod delete;
pub mod obligation;

use bytes::Bytes;
use reveille_core::stream::append::{Append, Receipt};
use reveille_core::stream::create::{Anchor, Create};
use reveille_core::stream::{Head, Rejected, StreamId};
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_store::keys::Due;

use crate::txn::{Missing, Txn};

/// A request to a partition.
#[derive(Debug, Clone)]
pub enum Command {
    /// Make a stream.
    Create {
        /// Whose.
        tenant: Tenant,
        /// Where.
        path: StreamPath,
        /// What it should be.
        request: Create,
        /// What stands where a fork leaves its source.
        anchor: Option<FetchedAnchor>,
    },
    /// Append to a stream, or close it.
    Append {
        /// Whose.
        tenant: Tenant,
        /// Which.
        path: StreamPath,
        /// What to append.
        request: Append,
    },
    /// End a stream.
    Delete {
        /// Whose.
        tenant: Tenant,
        /// Which.
        path: StreamPath,
    },
    /// A stream was read: write down when.
    Touch {
        /// Whose.
        tenant: Tenant,
        /// Which.
        path: StreamPath,
        /// Which incarnation was read.
        id: StreamId,
        /// When.
        at: Millis,
    },
    /// An obligation's time has come.
    Obligation {
        /// Its key in the due index.
        key: Bytes,
        /// What it is.
        due: Due,
        /// Keys to remove, for a purge.
        found: Vec<Bytes>,
    },
    /// Does the pipeline work?
    Probe,
}

/// What stood at an offset of a source; bytes of a stream never change, so it is still true.
#[derive(Debug, Clone)]
pub struct FetchedAnchor {
    /// The incarnation it was read from.
    pub source_id: StreamId,
    /// The offset.
    pub at: Offset,
    /// What begins there.
    pub anchor: Anchor,
}

/// The result of a command that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The stream is there.
    Created {
        /// As it is now.
        head: Box<Head>,
        /// Whether this request made it.
        new: bool,
    },
    /// The append is done.
    Appended(Receipt),
    /// Nothing more to say.
    Done,
}

/// Whether a command may run while the disk is nearly full.
pub(crate) fn is_write(command: &Command) -> bool {
    match command {
        Command::Create { .. } | Command::Append { .. } | Command::Probe => true,
        Command::Delete { .. } | Command::Touch { .. } | Command::Obligation { .. } => false,
    }
}

/// The bytes that a command adds to a batch, roughly.
pub(crate) fn weight(command: &Command) -> usize {
    const SMALL: usize = 512;
    SMALL
        + match command {
            Command::Create { request, .. } => request.body.size(),
            Command::Append { request, .. } => request.body.size(),
            Command::Obligation { found, .. } => found.len() * 32,
            Command::Delete { .. } | Command::Touch { .. } | Command::Probe => 0,
        }
}

/// Decides a command. Missing keys end the attempt without a trace; a rejection changes nothing.
pub(crate) fn decide(
    command: &Command,
    txn: &mut Txn<'_>,
) -> Result<Result<Answer, Rejected>, Missing> {
    match command {
        Command::Create { tenant, path, request, anchor } => {
            create::decide(txn, tenant, path, request, anchor.as_ref())
        }
        Command::Append { tenant, path, request } => append::decide(txn, tenant, path, request),
        Command::Delete { tenant, path } => delete::decide(txn, tenant, path),
        Command::Touch { tenant, path, id, at } => {
            obligation::touch(txn, tenant, path, *id, *at).map(Ok)
        }
        Command::Obligation { key, due, found } => obligation::fulfil(txn, key, due, found).map(Ok),
        Command::Probe => {
            txn.probe();
            Ok(Ok(Answer::Done))
        }
    }
}
