//! What a replay would make again or discard, counted before it is begun, and remembered until it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use reveille_core::audit::{self, AuditEntry, ChainHash};
use reveille_core::delivery::hook::{FaceId, Hook, HookId};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::replay::{LetterAction, ReplayRecord, ReplaySelection};
use reveille_core::delivery::{DeadReason, Versions};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_kernel::task;
use reveille_schema::keys::{self, TenantDeadLetter};
use reveille_schema::{Record, record};
use reveille_store::state::Reader;

use super::super::ended::{EndedHookIndex, NamedHooks};
use super::super::error::{DeliveryError, DeliveryRejection};
use super::super::index::HookIndex;
use super::super::send::delivery_record;
use super::super::source;
use super::{Letters, StartReplay, action_name};
use crate::app::{Part, Shared, Txn};
use crate::audit::Audited;
use crate::engine::Engine;
use crate::limits::{PREVIEW_MS, PREVIEWS_MAX, REPLAY_SCAN_MAX};
use crate::records::ReadRecord;

/// Which dead letters somebody means.
#[derive(Debug, Clone)]
pub struct ReplayRequest {
    pub tenant: Tenant,
    /// What is to be done with them.
    pub action: LetterAction,
    /// Those of the hook of this name.
    pub hook: Option<Arc<str>>,
    pub why: Option<DeadReason>,
    pub from: Option<Millis>,
    pub to: Option<Millis>,
    pub ids: Vec<DeliveryId>,
    /// Whether they follow the version of their hook that they had, and not the hook as it is.
    pub original: bool,
}

/// What a selection comes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplayCount {
    pub count: u64,
    /// What is to be delivered, in bytes.
    pub bytes: u64,
    pub by_hook: BTreeMap<HookId, u64>,
    /// When the first and the last of them died.
    pub oldest: Option<Millis>,
    pub newest: Option<Millis>,
    /// Whether there is more than is looked at: then it cannot be replayed as a whole.
    pub truncated: bool,
    /// Others, which are not replayed: their hook has ended.
    pub hook_gone: u64,
    /// Others, which are not replayed: the version of their hook that they had is not kept any more.
    pub version_gone: u64,
    /// A hook that has ended, if there is one.
    gone: Option<Arc<str>>,
    /// What tells this selection from another.
    fingerprint: Option<[u8; 32]>,
}

/// A hook some of whose dead letters are meant.
#[derive(Debug, Clone)]
pub struct PreviewedHook {
    pub name: Arc<str>,
    pub face: FaceId,
    pub is_paused: bool,
    pub count: u64,
}

/// A look at what a replay would do.
#[derive(Debug, Clone)]
pub struct ReplayPreview {
    pub id: Arc<str>,
    pub tenant: Tenant,
    pub selection: ReplaySelection,
    pub count: ReplayCount,
    pub hooks: Vec<PreviewedHook>,
    pub expires_at: Millis,
}

/// Previews, until they are used or too old: in memory, because whoever made one is still there.
#[derive(Default)]
pub struct ReplayPreviews(Mutex<HashMap<Arc<str>, ReplayPreview>>);

impl Part for ReplayPreviews {}

impl ReplayPreviews {
    fn keep(&self, preview: ReplayPreview, now: Millis) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, it| it.expires_at > now);
        let of_tenant = all.values().filter(|it| it.tenant == preview.tenant);
        if of_tenant.clone().count() >= PREVIEWS_MAX
            && let Some(oldest) = of_tenant.min_by_key(|it| it.expires_at).map(|it| it.id.clone())
        {
            all.remove(&oldest);
        }
        all.insert(preview.id.clone(), preview);
    }

    fn take(
        &self,
        tenant: &Tenant,
        action: LetterAction,
        id: &str,
        now: Millis,
    ) -> Option<ReplayPreview> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |it: &&ReplayPreview| it.tenant == *tenant && it.selection.action == action;
        all.get(id).filter(is_meant).filter(|it| it.expires_at > now)?;
        all.remove(id)
    }
}

/// Counts a selection.
fn count(
    shared: &Shared,
    reader: &Reader,
    tenant: &Tenant,
    selection: &ReplaySelection,
) -> Result<ReplayCount, Damaged> {
    let (mut count, mut fingerprint) = (ReplayCount::default(), ChainHash::START);
    let mut letters = Letters::new(reader, tenant, selection, &Bytes::new());
    let mut hooks: HashMap<HookId, Option<Arc<Hook>>> = HashMap::new();
    while let Some((key, id)) = letters.next()? {
        if letters.seen > REPLAY_SCAN_MAX {
            count.truncated = true;
            break;
        }
        let (Some(id), Some(letter)) = (id, TenantDeadLetter::parse(&key)) else { continue };
        let hook = hooks
            .entry(id.hook)
            .or_insert_with(|| shared.lock().index.of::<HookIndex>().get(id.hook).cloned());
        let face = match hook {
            Some(hook) => {
                if selection.original && !has_version(reader, hook, id)? {
                    count.version_gone += 1;
                    fingerprint = fingerprint.follow(&key);
                    continue;
                }
                hook.face
            }
            None => {
                let ended = shared.lock().index.of::<EndedHookIndex>().get(id.hook).cloned();
                let Some(ended) = ended else { continue };
                if selection.action == LetterAction::Replay {
                    count.hook_gone += 1;
                    count.gone.get_or_insert(ended.name);
                    fingerprint = fingerprint.follow(&key);
                    continue;
                }
                ended.face
            }
        };
        let event = source::event(reader, face, tenant, id.no.event)?;
        count.bytes += event.map_or(0, |event| event.place.len());
        count.count += 1;
        *count.by_hook.entry(id.hook).or_default() += 1;
        count.newest = count.newest.or(Some(letter.died_at));
        count.oldest = Some(letter.died_at);
        fingerprint = fingerprint.follow(&key);
    }
    count.fingerprint = Some(fingerprint.0);
    Ok(count)
}

/// Whether the version of its hook that a dead letter had is there to be followed. Hooks that keep
/// none are refused as a whole.
fn has_version(mut reader: &Reader, hook: &Hook, id: DeliveryId) -> Result<bool, Damaged> {
    let version = delivery_record(reader, id)?.map(|record| record.hook_version);
    match version.and_then(|version| hook.follows(version)) {
        Some(former) => {
            let kept = reader.read(&keys::hook_version(hook.id, former), record::decode_hook)?;
            Ok(kept.is_some())
        }
        None => Ok(true),
    }
}

impl Engine {
    /// Counts what a replay would make again or discard, and remembers it for a while.
    pub async fn preview_replay(
        &self,
        request: &ReplayRequest,
    ) -> Result<ReplayPreview, DeliveryError> {
        let now = self.clock().now();
        let selection = self.replay_selection(request, now)?;
        let count = self.count_replay(&request.tenant, &selection).await?;
        self.check_versions(&request.tenant, &selection, &count)?;
        let preview = ReplayPreview {
            id: format!("prv_{}", self.fresh_ulid()).into(),
            tenant: request.tenant.clone(),
            hooks: self.previewed_hooks(&request.tenant, &count),
            selection,
            count,
            expires_at: now + PREVIEW_MS,
        };
        let previews = self.partition(&request.tenant).domains.part::<ReplayPreviews>();
        previews.keep(preview.clone(), now);
        Ok(preview)
    }

    /// Begins the replay that a preview has shown.
    pub async fn replay_previewed(
        &self,
        tenant: &Tenant,
        action: LetterAction,
        preview: &str,
        reason: &str,
    ) -> Result<ReplayRecord, DeliveryError> {
        let previews = self.partition(tenant).domains.part::<ReplayPreviews>();
        let shown = previews.take(tenant, action, preview, self.clock().now());
        let shown = shown.ok_or(DeliveryRejection::PreviewStale)?;
        if self.count_replay(tenant, &shown.selection).await? != shown.count {
            return Err(DeliveryRejection::PreviewStale.into());
        }
        self.start_replay(tenant, shown.selection, &shown.count, Some(reason.into())).await
    }

    /// Begins a replay of whatever there is now, for those who need not look first.
    pub async fn replay_now(&self, request: &ReplayRequest) -> Result<ReplayRecord, DeliveryError> {
        let selection = self.replay_selection(request, self.clock().now())?;
        let count = self.count_replay(&request.tenant, &selection).await?;
        self.start_replay(&request.tenant, selection, &count, None).await
    }

    /// What a replay of a tenant has come to.
    pub fn replay(&self, tenant: &Tenant, id: u64) -> Result<Option<ReplayRecord>, Damaged> {
        let reader = self.partition(tenant).state.reader();
        (&reader).read(&keys::replay(tenant, id), ReplayRecord::decode)
    }

    async fn start_replay(
        &self,
        tenant: &Tenant,
        selection: ReplaySelection,
        count: &ReplayCount,
        reason: Option<Arc<str>>,
    ) -> Result<ReplayRecord, DeliveryError> {
        if count.truncated {
            return Err(DeliveryRejection::TooManyDeadLetters { max: REPLAY_SCAN_MAX }.into());
        }
        if selection.action == LetterAction::Replay {
            self.check_hooks(tenant, &selection, count)?;
        }
        let action = selection.action;
        let total = count.count + count.hook_gone + count.version_gone;
        let actor = self.actor().name.clone();
        let row = match action {
            LetterAction::Replay => audit::action::REPLAY_EXECUTED,
            LetterAction::Discard => audit::action::DEAD_LETTERS_DISCARDED,
        };
        let mut entry = self.audit_entry(row, Some(tenant), "");
        entry.reason.clone_from(&reason);
        let command = StartReplay { tenant: tenant.clone(), selection, total, actor, reason };
        let describe = |_: &Txn<'_>, replay: &ReplayRecord, entry: &mut AuditEntry| {
            entry.subject = action_name(action, replay.id).into();
            entry.diff = Some(format!("{{\"deadLetters\":{}}}", replay.total).into());
        };
        let audited = Audited { command, entry, describe };
        let begun = self.submit(tenant, &audited).await;
        let replay = begun.map_err(|error| error.map_rejection(|never| match never {}))?;
        let name = action_name(action, replay.id);
        tracing::info!(replay = name, total, "a replay of dead letters was begun");
        Ok(replay)
    }

    /// Whether all that is meant can be made again.
    fn check_hooks(
        &self,
        tenant: &Tenant,
        selection: &ReplaySelection,
        count: &ReplayCount,
    ) -> Result<(), DeliveryRejection> {
        for hook in self.hooks_of(tenant, count) {
            if !hook.is_active() {
                return Err(DeliveryRejection::HookInactive { hook: hook.name.clone() });
            }
        }
        if let (0, Some(hook)) = (count.count, &count.gone) {
            return Err(DeliveryRejection::HookGone { hook: hook.clone() });
        }
        self.check_versions(tenant, selection, count)
    }

    fn replay_selection(
        &self,
        request: &ReplayRequest,
        now: Millis,
    ) -> Result<ReplaySelection, DeliveryRejection> {
        let shared = self.partition(&request.tenant);
        let hooks = match &request.hook {
            None => Vec::new(),
            Some(name) => {
                let NamedHooks { live, ended } = NamedHooks::find(shared, &request.tenant, name)?;
                match (request.action, live) {
                    (LetterAction::Discard, live) => ended.into_iter().chain(live).collect(),
                    (LetterAction::Replay, Some(live)) => vec![live],
                    (LetterAction::Replay, None) => {
                        return Err(DeliveryRejection::HookGone { hook: name.clone() });
                    }
                }
            }
        };
        let hooks: BTreeSet<HookId> = hooks.into_iter().collect();
        // What dies from now on is not meant. A letter's time is its partition's, which may be ahead.
        let latest = shared.lock().time().max(now) + 1;
        Ok(ReplaySelection {
            action: request.action,
            hooks: hooks.into_iter().collect(),
            why: request.why,
            from: request.from.map_or(Millis(0), |date| self.time_of(date)),
            to: request.to.map_or(latest, |date| self.time_of(date)).min(latest),
            ids: request.ids.clone(),
            original: request.original,
        })
    }

    /// Former versions are followed where they are kept.
    fn check_versions(
        &self,
        tenant: &Tenant,
        selection: &ReplaySelection,
        count: &ReplayCount,
    ) -> Result<(), DeliveryRejection> {
        if !selection.original {
            return Ok(());
        }
        let named = selection.hooks.first().and_then(|id| {
            let partition = self.partition(tenant).lock();
            partition.index.of::<HookIndex>().get(*id).cloned()
        });
        let selected = self.hooks_of(tenant, count);
        match named.into_iter().chain(selected).find(|it| it.policy.versions == Versions::Current) {
            Some(hook) => Err(DeliveryRejection::NoVersions { hook: hook.name.clone() }),
            None => Ok(()),
        }
    }

    async fn count_replay(
        &self,
        tenant: &Tenant,
        selection: &ReplaySelection,
    ) -> Result<ReplayCount, Damaged> {
        let shared = self.partition(tenant).clone();
        let (reader, tenant, selection) =
            (shared.state.reader(), tenant.clone(), selection.clone());
        task::blocking(move || count(&shared, &reader, &tenant, &selection)).await
    }

    /// The hooks whose dead letters were counted, but for those that have ended.
    fn hooks_of(&self, tenant: &Tenant, count: &ReplayCount) -> Vec<Arc<Hook>> {
        let partition = self.partition(tenant).lock();
        let hooks = partition.index.of::<HookIndex>();
        count.by_hook.keys().filter_map(|id| hooks.get(*id).cloned()).collect()
    }

    fn previewed_hooks(&self, tenant: &Tenant, count: &ReplayCount) -> Vec<PreviewedHook> {
        let partition = self.partition(tenant).lock();
        let (hooks, ended) =
            (partition.index.of::<HookIndex>(), partition.index.of::<EndedHookIndex>());
        let known = |(id, count): (&HookId, &u64)| {
            let (name, face, is_paused) = match (hooks.get(*id), ended.get(*id)) {
                (Some(hook), _) => (hook.name.clone(), hook.face, hook.paused),
                (None, ended) => ended.map(|it| (it.name.clone(), it.face, false))?,
            };
            Some(PreviewedHook { name, face, is_paused, count: *count })
        };
        count.by_hook.iter().filter_map(known).collect()
    }
}
