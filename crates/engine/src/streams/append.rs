//! Appending to a stream, or closing it.

use reveille_core::stream::Rejected;
use reveille_core::stream::append::{Append, AppendReceipt, AppendResult, append};
use reveille_core::{StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::txn::ReadError;
use reveille_schema::keys::ConsumerKey;

use super::observer::{Growth, StreamObservers};
use super::txn::StreamTxn;
use crate::app::{App, Txn};
use crate::effect::Effect;

/// Appends to a stream, or closes it.
#[derive(Debug, Clone)]
pub struct AppendToStream {
    pub tenant: Tenant,
    pub path: StreamPath,
    pub request: Append,
}

impl Command<App> for AppendToStream {
    type Answer = AppendReceipt;
    type Rejection = Rejected;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<AppendReceipt, Rejected> {
        append_to(txn, &self.tenant, &self.path, &self.request, None)
    }

    fn weight(&self) -> usize {
        self.request.body.size()
    }

    fn needs_room(&self) -> bool {
        true
    }
}

/// Appends, and tells whoever is for the stream, but not the consumer whose own doing it is.
pub(crate) fn append_to(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    request: &Append,
    author: Option<&ConsumerKey>,
) -> Decision<AppendReceipt, Rejected> {
    write(txn, tenant, path, request, true, author)
}

/// Appends without telling any consumer.
pub(crate) fn append_silently(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    request: &Append,
) -> Decision<AppendReceipt, Rejected> {
    write(txn, tenant, path, request, false, None)
}

fn write(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    request: &Append,
    is_observed: bool,
    author: Option<&ConsumerKey>,
) -> Decision<AppendReceipt, Rejected> {
    let Some(head) = txn.live_head(tenant, path)? else {
        return Ok(Err(Rejected::NotFound));
    };
    let known = match &request.producer {
        Some(tag) => txn.producer(head.id, &tag.id)?,
        None => None,
    };
    let accepted = match append(&head, known, request, txn.now()) {
        Ok(accepted) => accepted,
        Err(rejected) => return Ok(Err(rejected)),
    };
    let receipt = match accepted {
        AppendResult::Duplicate { producer } => {
            let closed = head.closed.is_some();
            AppendReceipt { tail: head.tail, closed, producer, duplicate: true }
        }
        AppendResult::Appended { head: next, data, producer } => {
            if let (Some(tag), Some(state)) = (&request.producer, producer) {
                txn.set_producer(next.id, &tag.id, state);
            }
            let closed = next.closed.is_some();
            txn.append_bytes(next.id, head.tail, &data);
            txn.effect(Effect::NotifyReaders { id: next.id, from: head.tail, data, closed });
            txn.set_head(tenant, path, &next);
            if is_observed && next.tail > head.tail {
                let before = Some(head.tail);
                observe(txn, &Growth { tenant, path, head: &next, before, author })?;
            }
            AppendReceipt { tail: next.tail, closed, producer, duplicate: false }
        }
    };
    Ok(Ok(receipt))
}

/// Tells everybody who must know in this very step.
pub(super) fn observe(txn: &mut Txn<'_>, growth: &Growth<'_>) -> Result<(), ReadError> {
    for observer in StreamObservers::of(txn) {
        observer.grown(txn, growth)?;
    }
    Ok(())
}
