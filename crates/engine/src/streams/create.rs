//! Creating a stream, alone or as a fork.

use reveille_core::stream::create::{
    Create, Creation, ForkAnchor, ForkRequest, ForkSource, create, matches,
};
use reveille_core::stream::{Expiry, Head, Rejected, StreamId};
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::streams::StreamTimer;

use super::append::observe;
use super::observer::{Growth, StreamObservers};
use super::txn::StreamTxn;
use crate::app::{App, Txn};

/// Makes a stream, or finds that it is there as asked for.
#[derive(Debug, Clone)]
pub struct CreateStream {
    pub tenant: Tenant,
    pub path: StreamPath,
    /// What it should be.
    pub request: Create,
    /// What stands where a fork leaves its source.
    pub anchor: Option<FetchedAnchor>,
}

/// What stood at an offset of a source; bytes of a stream never change, so it is still true.
#[derive(Debug, Clone)]
pub struct FetchedAnchor {
    /// The incarnation it was read from.
    pub source_id: StreamId,
    pub at: Offset,
    /// What begins there.
    pub anchor: ForkAnchor,
}

/// A stream that is there, as it was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedStream {
    pub head: Box<Head>,
    /// Whether this request made it.
    pub is_new: bool,
}

impl Command<App> for CreateStream {
    type Answer = CreatedStream;
    type Rejection = Rejected;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<CreatedStream, Rejected> {
        create_stream(txn, &self.tenant, &self.path, &self.request, self.anchor.as_ref())
    }

    fn weight(&self) -> usize {
        self.request.body.size()
    }

    fn needs_room(&self) -> bool {
        true
    }
}

pub(crate) fn create_stream(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    request: &Create,
    fetched: Option<&FetchedAnchor>,
) -> Decision<CreatedStream, Rejected> {
    if let Some(head) = txn.live_head(tenant, path)? {
        let same = matches(&head, request);
        return Ok(same.map(|_| CreatedStream { head: Box::new(head), is_new: false }));
    }
    let mut source = None;
    if let Some(asked) = &request.fork {
        let Some(head) = txn.live_head(tenant, &asked.source)? else {
            return Ok(Err(Rejected::SourceNotFound));
        };
        source = Some((asked, head));
    }
    let with_anchor = source
        .as_ref()
        .map(|(asked, head)| ForkSource { head, anchor: anchor_at(asked, head, fetched) });
    match create(request, with_anchor.as_ref(), StreamId(txn.next_id()), txn.now()) {
        Err(rejected) => Ok(Err(rejected)),
        Ok(Creation::Exists) => unreachable!("the path is free"),
        Ok(Creation::New { mut head, data }) => {
            txn.take_id();
            head.followed = is_awaited(txn, tenant, path)?;
            let mut at = head.own_start();
            for append in data {
                txn.append_bytes(head.id, at, &append);
                at = at.plus(u64::try_from(append.len()).unwrap_or(u64::MAX));
            }
            if head.expiry != Expiry::Never {
                let timer = StreamTimer::Expire(tenant.clone(), path.clone());
                txn.set_stream_timer(txn.expires_at(&head), &timer);
            }
            txn.set_head(tenant, path, &head);
            if let Some((asked, from)) = source {
                let from = Head { forks: from.forks + 1, ..from };
                txn.set_head(tenant, &asked.source, &from);
            }
            // A stream that begins empty and without a body tells nobody; `[]` is a body.
            if !request.body.is_empty() || head.tail > Offset::ZERO {
                let growth = Growth { tenant, path, head: &head, before: None, author: None };
                observe(txn, &growth)?;
            }
            Ok(Ok(CreatedStream { head, is_new: true }))
        }
    }
}

/// Whether somebody follows the path by name although nothing was there.
fn is_awaited(txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath) -> Result<bool, ReadError> {
    for observer in StreamObservers::of(txn) {
        if observer.is_awaited(txn, tenant, path)? {
            return Ok(true);
        }
    }
    Ok(false)
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
