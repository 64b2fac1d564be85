//! What a decision reads and writes: kept apart until it is known to be whole.

use bytes::Bytes;
use reveille_core::producer::ProducerState;
use reveille_core::stream::delete::{Deletion, delete};
use reveille_core::stream::{Head, StreamId};
use reveille_core::{Millis, Offset, StreamPath, Tenant};
use reveille_store::keys::{self, Due, Meta};
use reveille_store::record;
use reveille_store::state::Reader;

use crate::effect::Effect;
use crate::partition::{Fetched, Pending};
use crate::touches::Touches;

/// A key that the decision needs and nobody has read yet, or what was read is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    Key(Bytes),
    Damaged(String),
}

/// One attempt at a decision.
pub(crate) struct Txn<'a> {
    given: Given<'a>,
    /// Everything to change, in order; a later change of a key replaces an earlier one.
    pub(crate) writes: Vec<(Bytes, Option<Bytes>)>,
    pub(crate) appends: Vec<(StreamId, u64, Bytes)>,
    pub(crate) effects: Vec<Effect>,
    /// Whether anything was read that is not durable yet: then the answer waits for it.
    pub(crate) saw_pending: bool,
    pub(crate) took_stream_id: bool,
}

/// What a decision is made from.
pub(crate) struct Given<'a> {
    pub(crate) now: Millis,
    pub(crate) next_stream_id: StreamId,
    pub(crate) pending: &'a Pending,
    pub(crate) recent: &'a Reader,
    pub(crate) fetched: &'a Fetched,
    pub(crate) touches: &'a Touches,
}

impl<'a> Txn<'a> {
    pub(crate) fn new(given: Given<'a>) -> Txn<'a> {
        Txn {
            given,
            writes: Vec::new(),
            appends: Vec::new(),
            effects: Vec::new(),
            saw_pending: false,
            took_stream_id: false,
        }
    }

    pub(crate) fn now(&self) -> Millis {
        self.given.now
    }

    /// The value of a key: this decision's own, then what is being synced, then what is durable.
    fn get(&mut self, key: &Bytes) -> Result<Option<Bytes>, Missing> {
        if let Some((_, value)) = self.writes.iter().rev().find(|(written, _)| written == key) {
            return Ok(value.clone());
        }
        if let Some(value) = self.given.pending.get(key) {
            self.saw_pending = true;
            return Ok(value.clone());
        }
        if let Some(value) = self.given.recent.get_recent(key) {
            return Ok(value);
        }
        // What the caller read is true unless the key may have changed since and the change has
        // already left memory.
        let (fetched, recent) = (self.given.fetched, self.given.recent);
        if fetched.seq >= recent.dropped()
            && fetched.generation == recent.generation()
            && let Some(value) = fetched.get(key)
        {
            return Ok(value.clone());
        }
        Err(Missing::Key(key.clone()))
    }

    /// The stream at a path, soft-deleted ones included. One whose time has come is ended here.
    pub(crate) fn live_head(
        &mut self,
        tenant: &Tenant,
        path: &StreamPath,
    ) -> Result<Option<Head>, Missing> {
        let Some(value) = self.get(&keys::stream(tenant, path))? else {
            return Ok(None);
        };
        let head = record::decode_head(&value)
            .map_err(|error| Missing::Damaged(format!("{path}: {error}")))?;
        if head.soft_deleted || self.now() < self.expires_at(&head) {
            return Ok(Some(head));
        }
        match delete(&head) {
            Err(_) => Ok(Some(head)),
            Ok(deletion) => {
                self.end(tenant, path, &head, deletion.clone());
                Ok(match deletion {
                    Deletion::Soft(head) => Some(*head),
                    Deletion::Hard => None,
                })
            }
        }
    }

    pub(crate) fn expires_at(&self, head: &Head) -> Millis {
        self.given.touches.expires_at(head)
    }

    pub(crate) fn producer(
        &mut self,
        id: StreamId,
        producer: &str,
    ) -> Result<Option<ProducerState>, Missing> {
        let Some(value) = self.get(&keys::producer(id, producer))? else {
            return Ok(None);
        };
        let state = record::decode_producer(&value);
        state.map(Some).map_err(|error| Missing::Damaged(error.to_string()))
    }

    pub(crate) fn is_set(&mut self, key: &Bytes) -> Result<bool, Missing> {
        Ok(self.get(key)?.is_some())
    }

    pub(crate) fn next_stream_id(&self) -> StreamId {
        self.given.next_stream_id
    }

    pub(crate) fn take_stream_id(&mut self) {
        self.took_stream_id = true;
        let next = record::encode_u64(self.given.next_stream_id.0 + 1);
        self.writes.push((keys::meta(Meta::NextStreamId), Some(next)));
    }

    pub(crate) fn set_head(&mut self, tenant: &Tenant, path: &StreamPath, head: &Head) {
        self.writes.push((keys::stream(tenant, path), Some(record::encode_head(head))));
    }

    pub(crate) fn set_producer(&mut self, id: StreamId, producer: &str, state: ProducerState) {
        let value = record::encode_producer(state);
        self.writes.push((keys::producer(id, producer), Some(value)));
    }

    pub(crate) fn set_due(&mut self, at: Millis, due: &Due) {
        self.writes.push((keys::due(at, due), Some(Bytes::new())));
        self.effects.push(Effect::Due(at));
    }

    pub(crate) fn remove(&mut self, key: &Bytes) {
        self.writes.push((key.clone(), None));
    }

    pub(crate) fn append(&mut self, id: StreamId, at: Offset, data: &Bytes) {
        if !data.is_empty() {
            self.appends.push((id, at.position(), data.clone()));
        }
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Ends a stream: what must follow is in the due index from the same batch on.
    pub(crate) fn end(
        &mut self,
        tenant: &Tenant,
        path: &StreamPath,
        head: &Head,
        deletion: Deletion,
    ) {
        self.effects.push(Effect::Ended(head.id));
        match deletion {
            Deletion::Soft(kept) => self.set_head(tenant, path, &kept),
            Deletion::Hard => {
                self.remove(&keys::stream(tenant, path));
                self.set_due(self.now(), &Due::Purge(head.id));
                if let Some(fork) = &head.fork {
                    let key = keys::due_release(self.now(), tenant, &fork.source, head.id);
                    self.writes.push((key, Some(Bytes::new())));
                }
            }
        }
    }

    /// Writes something of no consequence, so that the whole way of a write is walked.
    pub(crate) fn probe(&mut self) {
        let value = record::encode_u64(self.now().0);
        self.writes.push((keys::meta(Meta::Probe), Some(value)));
    }
}
