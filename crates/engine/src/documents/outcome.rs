//! Outcomes of writes: what is remembered under their idempotency keys, and which are being done.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use reveille_core::document::idempotency::{
    BodyHash, IdempotencyKey, Verdict, WriteEnd, WriteRecord, judge,
};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::{Record, keys};
use reveille_store::state::Reader;

use super::error::DocumentRejection;
use crate::app::{Part, Txn};
use crate::records::ReadRecord;

/// By what a repetition of a write is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteTag {
    /// Whose key it is.
    pub scope: Arc<str>,
    pub key: IdempotencyKey,
    pub body: BodyHash,
}

impl WriteTag {
    pub(super) fn outcome_key(&self, tenant: &Tenant) -> Bytes {
        keys::write_outcome(tenant, &self.scope, &self.key)
    }

    /// How a write of this tag ended before, if it did and that still counts.
    pub(super) fn recall(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
    ) -> Result<Result<Option<WriteRecord>, DocumentRejection>, ReadError> {
        let record = txn.read(&self.outcome_key(tenant), WriteRecord::decode)?;
        Ok(match judge(self.body, record.as_ref(), None, txn.now()) {
            Verdict::New | Verdict::InProgress => Ok(None),
            Verdict::Repeated(record) => Ok(Some(record.clone())),
            Verdict::OtherBody => Err(DocumentRejection::OtherBody),
        })
    }

    /// How a write of this tag ended, if that is on disk: for whoever meets another one of its kind.
    pub(super) fn recall_settled(
        &self,
        mut reader: &Reader,
        tenant: &Tenant,
        now: Millis,
    ) -> Result<Option<WriteRecord>, Damaged> {
        let record = reader.read(&self.outcome_key(tenant), WriteRecord::decode)?;
        Ok(match judge(self.body, record.as_ref(), None, now) {
            Verdict::Repeated(record) => Some(record.clone()),
            Verdict::New | Verdict::InProgress | Verdict::OtherBody => None,
        })
    }

    /// Remembers how it ends now, if that is remembered.
    pub(super) fn remember(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        end: WriteEnd,
        message: &str,
    ) -> Result<(), ReadError> {
        let ttl_ms = txn.domains().settings.documents.idempotency_ttl_ms.max(1);
        let Some(record) = WriteRecord::new(self.body, end, message, txn.now(), ttl_ms) else {
            return Ok(());
        };
        let key = self.outcome_key(tenant);
        if let Some(expired) = txn.read(&key, WriteRecord::decode)? {
            // Whoever removes it must not take this one for it.
            txn.remove(&keys::later(expired.expires, &key));
        }
        txn.set(keys::later(record.expires, &key), Bytes::new());
        txn.set(key, record.encode());
        Ok(())
    }
}

/// Writes with idempotency keys that are being done: as many as there are requests.
///
/// What is decided is seen by every later decision, so that nothing is ever done twice. This is
/// for those who ask again while the first one is still on its way: they need not wait for it.
#[derive(Default)]
pub struct WritesInFlight(Arc<Mutex<InFlight>>);

type InFlight = HashMap<(Tenant, Arc<str>, IdempotencyKey), BodyHash>;

impl Part for WritesInFlight {}

/// A write that is being done, until this is dropped.
pub(super) struct InFlightWrite {
    writes: Arc<Mutex<InFlight>>,
    key: (Tenant, Arc<str>, IdempotencyKey),
}

impl WritesInFlight {
    pub(super) fn begin(
        &self,
        tenant: &Tenant,
        tag: &WriteTag,
    ) -> Result<InFlightWrite, DocumentRejection> {
        let key = (tenant.clone(), tag.scope.clone(), tag.key.clone());
        let mut writes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match writes.entry(key.clone()) {
            Entry::Occupied(first) if *first.get() == tag.body => {
                Err(DocumentRejection::InProgress)
            }
            Entry::Occupied(_) => Err(DocumentRejection::OtherBody),
            Entry::Vacant(free) => {
                free.insert(tag.body);
                Ok(InFlightWrite { writes: self.0.clone(), key })
            }
        }
    }
}

impl Drop for InFlightWrite {
    fn drop(&mut self) {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}
