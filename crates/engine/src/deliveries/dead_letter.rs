//! Dead letters of a tenant, whatever face and hook they are of: looking at them, and discarding.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::audit::{AuditEntry, action};
use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::delivery::{DeadReason, Phase};
use reveille_core::key_range::above;
use reveille_core::{Millis, Tenant};
use reveille_kernel::command::{Command, Decision};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::keys::{self, TenantDeadLetter};
use reveille_schema::record::{self, DeliveryRecord};

use super::delivery::DeliveryTxn;
use super::ended::{self, NamedHooks};
use super::error::{DeliveryError, DeliveryRejection};
use super::face::DeliveryFaces;
use super::index::HookIndex;
use super::send::{self, delivery_record};
use crate::app::{App, Txn};
use crate::effect::EventPayload;
use crate::engine::Engine;
use crate::limits::LIST_SCAN_MAX;
use crate::records::{Scan, TakeEntry};

/// What has become of a dead letter; the byte is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterState {
    /// It waits for somebody to do something about it.
    Dead,
    /// It was made again.
    Retried,
    /// Somebody has said that nobody will.
    Discarded,
}

impl LetterState {
    pub(crate) fn of(value: &[u8]) -> LetterState {
        match value.first() {
            Some(1) => LetterState::Retried,
            Some(2) => LetterState::Discarded,
            _ => LetterState::Dead,
        }
    }

    fn value(self) -> Bytes {
        Bytes::from_static(match self {
            LetterState::Dead => &[0],
            LetterState::Retried => &[1],
            LetterState::Discarded => &[2],
        })
    }
}

/// Enters a dead letter among those of its tenant, or what has become of it.
pub(super) fn enter(
    txn: &mut Txn<'_>,
    hook: &Hook,
    died_at: Millis,
    id: DeliveryId,
    state: LetterState,
) {
    let entry = TenantDeadLetter { tenant: hook.tenant.clone(), died_at, id };
    txn.set(entry.key(), state.value());
}

/// A delivery's entry is forgotten with it.
pub(super) fn forget(txn: &mut Txn<'_>, hook: &Hook, died_at: Millis, id: DeliveryId) {
    txn.remove(&TenantDeadLetter { tenant: hook.tenant.clone(), died_at, id }.key());
}

/// The dead letter of this number, if it is one that nobody has done anything about, and when it
/// died.
pub(super) fn open_letter(
    txn: &mut Txn<'_>,
    id: DeliveryId,
) -> Result<Option<(DeliveryRecord, Millis)>, ReadError> {
    let record = txn.delivery(id)?.filter(|it| !it.retried);
    Ok(record.and_then(|it| match it.delivery.phase {
        Phase::Dead { at, .. } => Some((it, at)),
        _ => None,
    }))
}

/// A dead letter is none any more: it was made again, or discarded.
pub(super) fn close(
    txn: &mut Txn<'_>,
    hook: &Hook,
    id: DeliveryId,
    letter: DeliveryRecord,
    died_at: Millis,
    state: LetterState,
) -> Result<(), ReadError> {
    txn.remove(&keys::dead_letter(id, died_at));
    enter(txn, hook, died_at, id, state);
    let discarded = state == LetterState::Discarded;
    let closed = DeliveryRecord { retried: true, discarded, ..letter };
    txn.set(keys::delivery(id), record::encode_delivery(&closed));
    let mut counts = txn.counts(hook)?;
    counts.dead_letters = counts.dead_letters.saturating_sub(1);
    txn.scratch.counts.insert(hook.id, counts);
    Ok(())
}

/// Says that nobody will make a dead letter again.
#[derive(Debug, Clone)]
pub struct DiscardDeadLetter {
    pub tenant: Tenant,
    pub id: DeliveryId,
}

impl Command<App> for DiscardDeadLetter {
    type Answer = ();
    type Rejection = DeliveryRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), DeliveryRejection> {
        let is_discarded = discard(txn, &self.tenant, self.id)?;
        Ok(is_discarded.then_some(()).ok_or(DeliveryRejection::NoDeadLetter))
    }
}

/// Discards a dead letter, also one whose hook has ended; `false` if it is none of its tenant's.
pub(super) fn discard(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    id: DeliveryId,
) -> Result<bool, ReadError> {
    let known = ended::known(txn, id.hook)?.filter(|it| it.hook().tenant == *tenant);
    let Some(known) = known else { return Ok(false) };
    let Some((letter, died_at)) = open_letter(txn, id)? else { return Ok(false) };
    close(txn, known.hook(), id, letter, died_at, LetterState::Discarded)?;
    Ok(true)
}

/// A dead letter as it is shown.
#[derive(Debug, Clone)]
pub struct DeadLetterView {
    pub id: DeliveryId,
    pub died_at: Millis,
    pub why: DeadReason,
    pub state: LetterState,
    pub hook: Arc<Hook>,
    /// When its hook ended, if it has.
    pub hook_ended_at: Option<Millis>,
    pub record: DeliveryRecord,
    /// The delivery that it was made again as, if it was.
    pub again: Option<(DeliveryId, DeliveryRecord)>,
    /// What was to be delivered; nothing if that is no longer kept.
    pub event: Option<EventPayload>,
}

/// Which dead letters of a tenant are looked for.
#[derive(Debug, Clone)]
pub struct LetterFilter {
    pub tenant: Tenant,
    pub hook: Option<Arc<str>>,
    pub why: Option<DeadReason>,
    pub from: Millis,
    /// Before.
    pub to: Millis,
    pub state: LetterState,
}

/// A dead letter's place among those of its tenant.
pub type LetterCursor = (Millis, DeliveryId);

impl Engine {
    /// Dead letters of a tenant, newest first, after one. Returns the last one that was taken or
    /// looked at if there may be more.
    pub async fn tenant_dead_letters(
        &self,
        filter: &LetterFilter,
        after: Option<LetterCursor>,
        limit: usize,
        take: TakeEntry<'_, DeadLetterView>,
    ) -> Result<Option<LetterCursor>, DeliveryError> {
        let shared = self.partition(&filter.tenant);
        let hooks = match &filter.hook {
            None => None,
            Some(name) => {
                let NamedHooks { live, ended } = NamedHooks::find(shared, &filter.tenant, name)?;
                Some(live.into_iter().chain(ended).collect::<HashSet<HookId>>())
            }
        };
        let reader = shared.state.reader();
        let (first, to) = keys::tenant_dead_letters(&filter.tenant, filter.from, filter.to);
        let place = |(died_at, id)| TenantDeadLetter { tenant: filter.tenant.clone(), died_at, id };
        let from = after.map_or(first.clone(), |after| above(&place(after).key()).max(first));
        let (mut left, mut last) = (limit, after);
        for (seen, pair) in Scan::new(&reader, from, to).enumerate() {
            let (key, value) = pair?;
            let Some(TenantDeadLetter { died_at, id, .. }) = TenantDeadLetter::parse(&key) else {
                continue;
            };
            if seen == LIST_SCAN_MAX {
                return Ok(last);
            }
            let is_asked_for = LetterState::of(&value) == filter.state
                && hooks.as_ref().is_none_or(|hooks| hooks.contains(&id.hook));
            if is_asked_for
                && let Some(view) = self.dead_letter_view(&filter.tenant, id, false)?
                && filter.why.is_none_or(|why| why == view.why)
            {
                if left == 0 || !take(&view) {
                    return Ok(last);
                }
                left -= 1;
                // Others have waited meanwhile.
                tokio::task::yield_now().await;
            }
            last = Some((died_at, id));
        }
        Ok(None)
    }

    /// A dead letter of a tenant, with what was to be delivered if that is asked for.
    pub fn dead_letter_view(
        &self,
        tenant: &Tenant,
        id: DeliveryId,
        with_event: bool,
    ) -> Result<Option<DeadLetterView>, Damaged> {
        let shared = self.partition(tenant);
        let live = shared.lock().index.of::<HookIndex>().get(id.hook).cloned();
        let reader = shared.state.reader();
        let (hook, hook_ended_at) = match live {
            Some(hook) if hook.tenant == *tenant => (hook, None),
            Some(_) => return Ok(None),
            None => match ended::ended(&reader, tenant, id.hook)? {
                Some(ended) => (Arc::new(ended.hook), Some(ended.ended_at)),
                None => return Ok(None),
            },
        };
        let Some(record) = delivery_record(&reader, id)? else { return Ok(None) };
        let Phase::Dead { at: died_at, why } = record.delivery.phase else { return Ok(None) };
        let state = match (record.discarded, record.retried) {
            (true, _) => LetterState::Discarded,
            (false, true) => LetterState::Retried,
            (false, false) => LetterState::Dead,
        };
        let mut again = None;
        if state == LetterState::Retried
            && let Some(round) = id.no.round.checked_add(1)
        {
            let next = DeliveryId { no: DeliveryNo { round, ..id.no }, ..id };
            again = delivery_record(&reader, next)?.map(|record| (next, record));
        }
        let mut event = None;
        if with_event {
            let face = shared.domains.part::<DeliveryFaces>().get(hook.face)?;
            event = send::payload(&reader, face, &hook, id.no.event)?;
        }
        Ok(Some(DeadLetterView {
            id,
            died_at,
            why,
            state,
            hook,
            hook_ended_at,
            record,
            again,
            event,
        }))
    }

    /// Says that nobody will make a dead letter again, and why.
    pub async fn discard_dead_letter(
        &self,
        tenant: &Tenant,
        id: DeliveryId,
        name: &str,
        reason: &str,
    ) -> Result<(), DeliveryError> {
        let entry = AuditEntry {
            reason: Some(reason.into()),
            ..self.audit_entry(action::DEAD_LETTER_DISCARDED, Some(tenant), name)
        };
        let command = DiscardDeadLetter { tenant: tenant.clone(), id };
        self.submit_audited(tenant, command, entry).await
    }
}
