//! What the due index asks for: expiry, clean-up, and letting go of a fork's source.

use bytes::Bytes;
use reveille_core::stream::delete::{Deletion, ForkRelease, release};
use reveille_core::stream::{Expiry, Head, StreamId};
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_schema::keys::Due;

use super::{Answer, consumer, fan_out, hook, ingest};
use crate::txn::{ReadError, Txn};

/// Writes down that a stream was read, if it is still the one that was.
pub(super) fn touch(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    id: StreamId,
    at: Millis,
) -> Result<Answer, ReadError> {
    if let Some(head) = txn.live_head(tenant, path)?
        && head.id == id
        && head.touched_at < at
    {
        txn.set_head(tenant, path, &Head { touched_at: at, ..head });
    }
    Ok(Answer::Done)
}

/// Does what an entry of the due index asks for, and takes the entry out.
pub(super) fn fulfil(
    txn: &mut Txn<'_>,
    key: &Bytes,
    due: &Due,
    found: &[Bytes],
) -> Result<Answer, ReadError> {
    match due {
        // Entries are removed first that may be written anew, be it for the same time.
        Due::Expire(tenant, path) => {
            txn.remove(key);
            expire(txn, tenant, path)?;
        }
        Due::Release(tenant, source) => {
            // Doing it twice would count a fork off twice: the entry must still be there.
            if txn.is_set(key)? {
                release_source(txn, tenant, source)?;
                txn.remove(key);
            }
        }
        Due::Forget(tenant, path, id) => {
            consumer::forget(txn, key, tenant, path, *id)?;
        }
        Due::FanOutToSubscriptions(tenant, path, id) => fan_out::walk(txn, key, tenant, path, *id)?,
        Due::FanOutToFollowers(tenant, path, id, from) => {
            if let Some(head) = txn.live_head(tenant, path)?
                && head.id == *id
            {
                consumer::tell_followers(txn, tenant, path, &head, from, None)?;
            }
            txn.remove(key);
        }
        Due::Consumer(_) | Due::Delivery(_) | Due::DeliveryGroup(_) => {
            unreachable!("the time of a consumer or of deliveries is a command of its own")
        }
        Due::FanOutToHooks(tenant, event) => {
            txn.remove(key);
            ingest::fan_out(txn, tenant, *event, found.first())?;
        }
        Due::Backfill(tenant, id) => {
            txn.remove(key);
            hook::backfill(txn, tenant, *id)?;
        }
        Due::Resume(tenant, id) => {
            txn.remove(key);
            hook::resume(txn, tenant, *id)?;
        }
        Due::Purge(_) | Due::Unsubscribe(..) | Due::Unhook(..) => {
            txn.remove_all(found)?;
            // The entry stays until a look finds nothing more.
            if found.is_empty() {
                txn.remove(key);
            }
        }
    }
    Ok(Answer::Done)
}

/// Ends the stream if its time has come, else comes back when it will have.
fn expire(txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath) -> Result<(), ReadError> {
    // An expired stream is ended by looking at it.
    if let Some(head) = txn.live_head(tenant, path)?
        && head.expiry != Expiry::Never
        && !head.soft_deleted
    {
        let due = Due::Expire(tenant.clone(), path.clone());
        txn.set_due(txn.expires_at(&head), &due);
    }
    Ok(())
}

fn release_source(txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath) -> Result<(), ReadError> {
    let Some(head) = txn.live_head(tenant, path)? else {
        return Ok(());
    };
    match release(&head) {
        ForkRelease::Kept(head) => txn.set_head(tenant, path, &head),
        ForkRelease::Ended => txn.end(tenant, path, &head, Deletion::Hard),
    }
    Ok(())
}
