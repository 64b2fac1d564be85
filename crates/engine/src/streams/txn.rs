//! What decisions read and write of streams.

use reveille_core::producer::ProducerState;
use reveille_core::stream::delete::{Deletion, delete};
use reveille_core::stream::{Head, StreamId};
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::streams::StreamTimer;
use reveille_schema::{keys, record};
use reveille_store::keys::BlobId;

use super::access_times::AccessTimes;
use super::observer::StreamObservers;
use crate::app::Txn;
use crate::effect::Effect;
use crate::records::ReadRecord;

/// Streams, as a decision sees them.
pub(crate) trait StreamTxn {
    /// The stream at a path, soft-deleted ones included. One whose time has come is ended here.
    fn live_head(&mut self, tenant: &Tenant, path: &StreamPath) -> Result<Option<Head>, ReadError>;

    /// When the stream ends if nobody touches it any more.
    fn expires_at(&self, head: &Head) -> Millis;

    fn set_head(&mut self, tenant: &Tenant, path: &StreamPath, head: &Head);

    fn producer(
        &mut self,
        id: StreamId,
        producer: &str,
    ) -> Result<Option<ProducerState>, ReadError>;

    fn set_producer(&mut self, id: StreamId, producer: &str, state: ProducerState);

    /// Adds bytes to a stream, where it ends.
    fn append_bytes(&mut self, id: StreamId, at: Offset, data: &bytes::Bytes);

    /// Bytes of a stream before an offset are not kept any more.
    fn trim_bytes(&mut self, id: StreamId, kept_from: Offset);

    fn set_stream_timer(&mut self, at: Millis, timer: &StreamTimer);

    /// Ends a stream: what must follow is in the due index from the same batch on.
    fn end_stream(&mut self, tenant: &Tenant, path: &StreamPath, head: &Head, deletion: Deletion);
}

impl StreamTxn for Txn<'_> {
    fn live_head(&mut self, tenant: &Tenant, path: &StreamPath) -> Result<Option<Head>, ReadError> {
        let Some(value) = self.get(&keys::stream(tenant, path))? else {
            return Ok(None);
        };
        let head =
            record::decode_head(&value).map_err(|error| Damaged(format!("{path}: {error}")))?;
        if head.soft_deleted || self.now() < self.expires_at(&head) {
            return Ok(Some(head));
        }
        match delete(&head) {
            Err(_) => Ok(Some(head)),
            Ok(deletion) => {
                self.end_stream(tenant, path, &head, deletion.clone());
                Ok(match deletion {
                    Deletion::Soft(head) => Some(*head),
                    Deletion::Hard => None,
                })
            }
        }
    }

    fn expires_at(&self, head: &Head) -> Millis {
        self.domains().part::<AccessTimes>().expires_at(head)
    }

    fn set_head(&mut self, tenant: &Tenant, path: &StreamPath, head: &Head) {
        self.set(keys::stream(tenant, path), record::encode_head(head));
    }

    fn producer(
        &mut self,
        id: StreamId,
        producer: &str,
    ) -> Result<Option<ProducerState>, ReadError> {
        self.read(&keys::producer(id, producer), record::decode_producer)
    }

    fn set_producer(&mut self, id: StreamId, producer: &str, state: ProducerState) {
        self.set(keys::producer(id, producer), record::encode_producer(state));
    }

    fn append_bytes(&mut self, id: StreamId, at: Offset, data: &bytes::Bytes) {
        self.append(BlobId(id.0), at.position(), data);
    }

    fn trim_bytes(&mut self, id: StreamId, kept_from: Offset) {
        self.trim(BlobId(id.0), kept_from.position());
    }

    fn set_stream_timer(&mut self, at: Millis, timer: &StreamTimer) {
        self.set_timer(at, &timer.encode());
    }

    fn end_stream(&mut self, tenant: &Tenant, path: &StreamPath, head: &Head, deletion: Deletion) {
        self.effect(Effect::ReleaseReaders(head.id));
        match deletion {
            Deletion::Soft(kept) => self.set_head(tenant, path, &kept),
            Deletion::Hard => {
                self.remove(&keys::stream(tenant, path));
                self.set_stream_timer(self.now(), &StreamTimer::Purge(head.id));
                if let Some(fork) = &head.fork {
                    let release =
                        StreamTimer::Release(tenant.clone(), fork.source.clone(), head.id);
                    self.set_stream_timer(self.now(), &release);
                }
            }
        }
        for observer in StreamObservers::of(self) {
            observer.ended(self, tenant, path, head);
        }
    }
}
