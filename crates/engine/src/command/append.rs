//! Appending to a stream.

use reveille_core::stream::Rejected;
use reveille_core::stream::append::{Append, AppendReceipt, AppendResult, append};
use reveille_core::{StreamPath, Tenant};
use reveille_schema::keys::ConsumerKey;

use super::{Answer, Decided, consumer};
use crate::effect::Effect;
use crate::txn::{ReadError, Txn};

pub(super) fn decide(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    request: &Append,
) -> Decided {
    let receipt = grow(txn, tenant, path, request, None)?;
    Ok(receipt.map(Answer::Appended).map_err(Into::into))
}

/// Appends, and tells whoever is for the stream, but not the consumer whose own doing it is.
pub(super) fn grow(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    request: &Append,
    but: Option<&ConsumerKey>,
) -> Result<Result<AppendReceipt, Rejected>, ReadError> {
    write(txn, tenant, path, request, Some(but))
}

/// Appends without telling any consumer.
pub(super) fn grow_silently(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    request: &Append,
) -> Result<Result<AppendReceipt, Rejected>, ReadError> {
    write(txn, tenant, path, request, None)
}

fn write(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
    request: &Append,
    tells: Option<Option<&ConsumerKey>>,
) -> Result<Result<AppendReceipt, Rejected>, ReadError> {
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
        AppendResult::Duplicate { producer } => AppendReceipt {
            tail: head.tail,
            closed: head.closed.is_some(),
            producer,
            duplicate: true,
        },
        AppendResult::Appended { head: next, data, producer } => {
            if let (Some(tag), Some(state)) = (&request.producer, producer) {
                txn.set_producer(next.id, &tag.id, state);
            }
            let closed = next.closed.is_some();
            txn.append(next.id, head.tail, &data);
            txn.effect(Effect::NotifyReaders { id: next.id, from: head.tail, data, closed });
            txn.set_head(tenant, path, &next);
            if let Some(but) = tells
                && next.tail > head.tail
            {
                consumer::grown(txn, tenant, path, &next, Some(head.tail), but)?;
            }
            AppendReceipt { tail: next.tail, closed, producer, duplicate: false }
        }
    };
    Ok(Ok(receipt))
}
