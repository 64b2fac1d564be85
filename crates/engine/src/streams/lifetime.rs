//! How streams come to their end by themselves: expiry, clean-up, and letting go of a fork's source.

use bytes::Bytes;
use reveille_core::stream::delete::{Deletion, ForkRelease, release};
use reveille_core::stream::{Expiry, Head, StreamId};
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::{Damaged, Never};
use reveille_kernel::timers::{DueTimer, TimerTraits};
use reveille_kernel::txn::ReadError;
use reveille_schema::keys;
use reveille_schema::streams::StreamTimer;
use reveille_store::keys::{self as store_keys, BlobId};
use reveille_store::state::Reader;

use super::txn::StreamTxn;
use crate::app::{App, Txn};
use crate::limits::PURGE_SLICE;

/// Writes down that a stream was read.
#[derive(Debug, Clone)]
pub struct TouchStream {
    pub tenant: Tenant,
    pub path: StreamPath,
    /// The incarnation that was read.
    pub id: StreamId,
    pub at: Millis,
}

impl Command<App> for TouchStream {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        if let Some(head) = txn.live_head(&self.tenant, &self.path)?
            && head.id == self.id
            && head.touched_at < self.at
        {
            txn.set_head(&self.tenant, &self.path, &Head { touched_at: self.at, ..head });
        }
        Ok(Ok(()))
    }
}

/// A timer of a stream is due.
#[derive(Debug, Clone)]
pub struct FireStreamTimer {
    timer: StreamTimer,
    entry: DueTimer,
    /// Keys to remove, for a purge.
    found: Vec<Bytes>,
}

impl FireStreamTimer {
    /// How many keys it removes, for one that clears up in slices.
    pub(crate) fn removals(&self) -> usize {
        self.found.len()
    }

    pub fn new(reader: &Reader, entry: DueTimer) -> Result<FireStreamTimer, Damaged> {
        let damaged = || Damaged::new("a timer of a stream cannot be read");
        let timer = StreamTimer::decode(entry.name()).ok_or_else(damaged)?;
        let found = match timer {
            StreamTimer::Purge(id) => remains(reader, id)?,
            StreamTimer::Expire(..) | StreamTimer::Release(..) => Vec::new(),
        };
        Ok(FireStreamTimer { timer, entry, found })
    }

    /// All of them may stay for a next time, and look before they act.
    pub const TRAITS: TimerTraits =
        TimerTraits { fires_once: false, is_patient: false, reads: true };
}

impl Command<App> for FireStreamTimer {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Never> {
        let key = &self.entry.key;
        match &self.timer {
            // It is removed first: it may be written anew, be it for the same time.
            StreamTimer::Expire(tenant, path) => {
                txn.remove(key);
                expire(txn, tenant, path)?;
            }
            StreamTimer::Release(tenant, source, _) => {
                // Doing it twice would count a fork off twice: the entry must still be there.
                if txn.is_set(key)? {
                    release_source(txn, tenant, source)?;
                    txn.remove(key);
                }
            }
            StreamTimer::Purge(_) => {
                for found in &self.found {
                    txn.remove(found);
                }
                // The entry stays until a look finds nothing more.
                if self.found.is_empty() {
                    txn.remove(key);
                }
            }
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        self.found.len() * 32
    }

    fn not_before(&self) -> Millis {
        self.entry.at()
    }
}

/// Ends the stream if its time has come, else comes back when it will have.
fn expire(txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath) -> Result<(), ReadError> {
    // An expired stream is ended by looking at it.
    if let Some(head) = txn.live_head(tenant, path)?
        && head.expiry != Expiry::Never
        && !head.soft_deleted
    {
        let timer = StreamTimer::Expire(tenant.clone(), path.clone());
        txn.set_stream_timer(txn.expires_at(&head), &timer);
    }
    Ok(())
}

fn release_source(txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath) -> Result<(), ReadError> {
    let Some(head) = txn.live_head(tenant, path)? else {
        return Ok(());
    };
    match release(&head) {
        ForkRelease::Kept(head) => txn.set_head(tenant, path, &head),
        ForkRelease::Ended => txn.end_stream(tenant, path, &head, Deletion::Hard),
    }
    Ok(())
}

/// The first keys that an ended incarnation has left.
fn remains(reader: &Reader, id: StreamId) -> Result<Vec<Bytes>, Damaged> {
    let (from, to) = store_keys::chunks(BlobId(id.0));
    let mut found = reader.keys(&from, &to, PURGE_SLICE)?;
    if found.len() < PURGE_SLICE {
        let (from, to) = keys::producers(id);
        found.extend(reader.keys(&from, &to, PURGE_SLICE - found.len())?);
    }
    Ok(found)
}
