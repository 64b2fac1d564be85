//! Streams that are the server's own: nobody else writes them, and they are there once something is
//! in them.

use bytes::Bytes;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::Create;
use reveille_core::stream::{Body, Head, Rejected};
use reveille_core::{ContentType, Offset, StreamPath, Tenant};
use reveille_kernel::command::Decision;

use super::append::append_to;
use super::create::create_stream;
use super::txn::StreamTxn;
use crate::app::Txn;

/// Appends JSON messages, each followed by a comma, to a stream, which the first of them makes.
/// Returns the head that the stream had, and where they begin.
pub(crate) fn append_own(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    stream: &StreamPath,
    messages: Bytes,
) -> Decision<(Head, Offset), Rejected> {
    let content_type = Some(ContentType::json());
    let head = match txn.live_head(tenant, stream)? {
        Some(head) => head,
        None => {
            let request = Create { content_type: content_type.clone(), ..Create::default() };
            match create_stream(txn, tenant, stream, &request, None)? {
                Ok(created) => *created.head,
                Err(rejected) => return Ok(Err(rejected)),
            }
        }
    };
    let body = Body::of_messages(messages);
    let request = Append { content_type, body, ..Append::default() };
    let from = head.tail;
    let appended = append_to(txn, tenant, stream, &request, None)?;
    Ok(appended.map(|_| (head, from)))
}
