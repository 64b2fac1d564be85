//! Creating a stream, alone or as a fork.

use reveille_core::stream::create::{
    Create, Creation, ForkAnchor, ForkRequest, ForkSource, create, matches,
};
use reveille_core::stream::{Expiry, Head, Rejected, StreamId};
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_schema::keys::{self, Due};

use super::{Answer, Decided, FetchedAnchor, consumer};
use crate::txn::{ReadError, Txn};

pub(super) fn decide(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    request: &Create,
    fetched: Option<&FetchedAnchor>,
) -> Decided {
    if let Some(head) = txn.live_head(tenant, path)? {
        let same = matches(&head, request);
        let found = same.map(|_| Answer::Created { head: Box::new(head), new: false });
        return Ok(found.map_err(Into::into));
    }
    let mut source = None;
    if let Some(spec) = &request.fork {
        let Some(head) = txn.live_head(tenant, &spec.source)? else {
            return Ok(Err(Rejected::SourceNotFound.into()));
        };
        source = Some((spec, head));
    }
    let with_anchor = source
        .as_ref()
        .map(|(spec, head)| ForkSource { head, anchor: anchor_at(spec, head, fetched) });
    match create(request, with_anchor.as_ref(), StreamId(txn.next_id()), txn.now()) {
        Err(rejected) => Ok(Err(rejected.into())),
        Ok(Creation::Exists) => unreachable!("the path is free"),
        Ok(Creation::New { mut head, data }) => {
            txn.take_id();
            head.followed = is_awaited(txn, tenant, path)?;
            let mut at = head.own_start();
            for append in data {
                txn.append(head.id, at, &append);
                at = at.plus(u64::try_from(append.len()).unwrap_or(u64::MAX));
            }
            if head.expiry != Expiry::Never {
                let due = Due::Expire(tenant.clone(), path.clone());
                txn.set_due(head.expires_at(txn.now()), &due);
            }
            txn.set_head(tenant, path, &head);
            if let Some((spec, from)) = source {
                let from = Head { forks: from.forks + 1, ..from };
                txn.set_head(tenant, &spec.source, &from);
            }
            // A stream that begins empty and without a body tells nobody; `[]` is a body.
            if !request.body.is_empty() || head.tail > Offset::ZERO {
                consumer::grown(txn, tenant, path, &head, None, None)?;
            }
            Ok(Ok(Answer::Created { head, new: true }))
        }
    }
}

/// Whether consumers follow the path by name although nothing was there.
fn is_awaited(txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath) -> Result<bool, ReadError> {
    if !txn.registry().any_followers {
        return Ok(false);
    }
    let (from, to) = keys::followers(tenant, path);
    let found = txn.range(&from, &to, 1)?;
    // The first may just have left, and others not been looked at.
    Ok(!found.pairs.is_empty() || !found.complete)
}

/// What stands at the fork's offset, from what the caller read of this very source.
fn anchor_at(spec: &ForkRequest, head: &Head, fetched: Option<&FetchedAnchor>) -> ForkAnchor {
    let at = spec.at.unwrap_or(head.tail);
    if at == head.tail {
        return ForkAnchor::Tail;
    }
    let same = fetched.filter(|fetched| fetched.source_id == head.id && fetched.at == at);
    same.map_or(ForkAnchor::Nowhere, |fetched| fetched.anchor.clone())
}
