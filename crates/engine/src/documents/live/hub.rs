//! Who follows the documents of a tenant, and who of them must be told of a change.
//!
//! A write costs its partition one look whether anybody follows its tenant. Everything else is done
//! by one task for each tenant that is followed: it reads the changes, once for all, and hands those
//! of each collection to whoever follows it. A mailbox holds a few batches, which all share; whoever
//! does not empty it in time reads by itself.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use reveille_core::Tenant;
use reveille_core::document::live::{ChangeImages, Extent, LivePlace};
use reveille_core::document::path::{CollectionPath, DocumentPath};
use reveille_kernel::error::Damaged;
use reveille_kernel::reply_budget::{ReplyPermit, ReplyRoom};
use reveille_kernel::task;
use reveille_schema::keys;
use reveille_store::state::Reader;
use tokio::sync::Notify;

use super::changes::{StoredChange, change_head, changes_after, rules_version};
use super::picture::{LiveEvent, LiveNews};
use crate::app::{Part, Shared};
use crate::limits::{LIVE_BATCH_BYTES, LIVE_BATCHES};
use crate::matching::Shares;

/// The tenants whose documents somebody follows.
#[derive(Default)]
pub struct LiveQueries {
    hubs: Mutex<HashMap<Tenant, Arc<Hub>>>,
    is_used: AtomicBool,
}

/// Changes of one collection, one after another, for all who follow it. They share them.
pub struct ChangeBatch {
    /// Whoever has everything up to the change before the first of them, as far as the collection
    /// goes, has everything up to here with them.
    pub through: u64,
    pub events: Vec<LiveEvent>,
    /// How a face says all of them, once one has.
    pub encoded: OnceLock<Bytes>,
    /// Which rules there are.
    rules: Option<u64>,
    _permit: ReplyPermit,
}

/// What a mailbox has.
pub(super) enum Mail {
    Batch(Arc<ChangeBatch>),
    /// Something was not handed over.
    Behind,
}

/// Those who follow one tenant's documents.
struct Hub {
    tenant: Tenant,
    /// There are changes, or other rules, or nobody follows any more.
    wake: Notify,
    has_other_rules: AtomicBool,
    followers: Mutex<Followers>,
}

#[derive(Default)]
struct Followers {
    /// Nobody follows any more, and nobody comes: whoever would makes another hub.
    is_over: bool,
    /// The last change that was handed out.
    through: u64,
    next_no: u64,
    mailboxes: HashMap<u64, Mailbox>,
    by_collection: HashMap<CollectionPath, BTreeSet<u64>>,
    by_lookup: HashMap<DocumentPath, BTreeSet<u64>>,
}

struct Mailbox {
    collection: CollectionPath,
    lookups: BTreeSet<DocumentPath>,
    /// Whether it takes batches, or only wants to know that there is something.
    takes_batches: bool,
    batches: VecDeque<Arc<ChangeBatch>>,
    is_behind: bool,
    arrived: Arc<Notify>,
}

/// Somebody's place among those who follow.
pub(super) struct LiveWatch {
    hub: Arc<Hub>,
    no: u64,
    arrived: Arc<Notify>,
}

impl Part for LiveQueries {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::all_change_heads(), keys::all_rules()]
    }

    fn follow(&self, key: &Bytes, _: Option<&Bytes>) -> Result<(), Damaged> {
        if !self.is_used.load(Ordering::Acquire) {
            return Ok(());
        }
        let rules_of = keys::parse_rules(key);
        let is_rules = rules_of.is_some();
        let Some(tenant) = rules_of.or_else(|| keys::parse_change_head(key)) else {
            return Ok(());
        };
        if let Some(hub) = self.lock().get(&tenant) {
            if is_rules {
                hub.has_other_rules.store(true, Ordering::Release);
            }
            hub.wake.notify_one();
        }
        Ok(())
    }
}

impl LiveQueries {
    /// Begins to follow a collection: whatever becomes durable from now on is heard of.
    pub(super) fn watch(
        shared: &Arc<Shared>,
        tenant: &Tenant,
        collection: &CollectionPath,
        room: ReplyRoom,
    ) -> Result<LiveWatch, Damaged> {
        let queries = shared.domains.part::<LiveQueries>();
        loop {
            let hub = match queries.hub(tenant) {
                Some(hub) => hub,
                None => {
                    // It begins with what comes after this, and looks at once: nothing is missed.
                    let through = change_head(&shared.state.reader(), tenant)?.seq;
                    queries.add(shared, tenant, through, &room)
                }
            };
            let mut followers = hub.lock();
            if let Some((no, arrived)) = followers.enter(collection) {
                drop(followers);
                return Ok(LiveWatch { hub, no, arrived });
            }
        }
    }

    fn hub(&self, tenant: &Tenant) -> Option<Arc<Hub>> {
        self.lock().get(tenant).cloned()
    }

    /// The hub of a tenant that had none a moment ago.
    fn add(
        &self,
        shared: &Arc<Shared>,
        tenant: &Tenant,
        through: u64,
        room: &ReplyRoom,
    ) -> Arc<Hub> {
        let mut hubs = self.lock();
        self.is_used.store(true, Ordering::Release);
        let hub = hubs.entry(tenant.clone()).or_insert_with(|| {
            let followers = Followers { through, ..Followers::default() };
            let hub = Arc::new(Hub {
                tenant: tenant.clone(),
                wake: Notify::new(),
                has_other_rules: AtomicBool::new(false),
                followers: Mutex::new(followers),
            });
            tokio::spawn(run(hub.clone(), Arc::downgrade(shared), room.clone()));
            hub
        });
        hub.wake.notify_one();
        hub.clone()
    }

    /// Takes a hub away.
    fn remove(&self, hub: &Arc<Hub>) {
        let mut hubs = self.lock();
        if hubs.get(&hub.tenant).is_some_and(|known| Arc::ptr_eq(known, hub)) {
            hubs.remove(&hub.tenant);
        }
        self.is_used.store(!hubs.is_empty(), Ordering::Release);
    }

    /// Held for a moment alone, and by nobody who has another lock: each write waits for it.
    fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, Arc<Hub>>> {
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands out what becomes durable until nobody follows any more.
async fn run(hub: Arc<Hub>, shared: Weak<Shared>, room: ReplyRoom) {
    loop {
        hub.wake.notified().await;
        loop {
            let Some(shared) = shared.upgrade() else { return };
            if hub.lock().end_if_idle() {
                shared.domains.part::<LiveQueries>().remove(&hub);
                return;
            }
            let (of, room) = (hub.clone(), room.clone());
            let handed = task::blocking(move || of.hand_out(&shared, &room)).await;
            match handed {
                Ok(true) => {}
                Ok(false) => break,
                Err(Damaged(error)) => {
                    tracing::error!(tenant = hub.tenant.as_str(), error, "changes cannot be read");
                    hub.lock().tell_all();
                    break;
                }
            }
        }
    }
}

impl Hub {
    /// Hands out the changes after the last one, some of them. Says whether there may be more.
    fn hand_out(&self, shared: &Shared, room: &ReplyRoom) -> Result<bool, Damaged> {
        let has_other_rules = self.has_other_rules.swap(false, Ordering::AcqRel);
        let reader = shared.state.reader();
        let head = change_head(&reader, &self.tenant)?.seq;
        let rules = rules_version(&reader, &self.tenant)?;
        let through = {
            let mut followers = self.lock();
            if has_other_rules {
                followers.tell_all();
            }
            followers.through
        };
        if through >= head {
            return Ok(false);
        }
        let Some(changes) = changes_after(&reader, &self.tenant, through)? else {
            // They were forgotten meanwhile: whoever follows finds out what that means.
            let mut followers = self.lock();
            followers.through = head;
            followers.tell_all();
            return Ok(false);
        };
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let work = u64::try_from(changes.len()).unwrap_or(u64::MAX);
        shared.domains.part::<Shares>().count(&self.tenant, work);
        // Who comes after this looks after this: they find all of it by themselves.
        let (wanted, lookups) = self.lock().wanted(&changes);
        let mut slice = Slice { through, batches: HashMap::new(), lookups };
        for change in changes {
            slice.through = change.seq;
            if let Some(takes_batches) = wanted.get(change.path.collection()) {
                slice.add(&reader, change, *takes_batches, room)?;
            }
        }
        let is_more = slice.through < head;
        self.lock().deliver(slice, rules);
        Ok(is_more)
    }

    fn lock(&self) -> MutexGuard<'_, Followers> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Some of the changes that are handed out together.
struct Slice {
    through: u64,
    /// By collection; none where they are not handed out, and only said to be there.
    batches: HashMap<CollectionPath, Option<(Vec<LiveEvent>, ReplyPermit)>>,
    lookups: HashSet<DocumentPath>,
}

impl Slice {
    fn add(
        &mut self,
        reader: &Reader,
        change: StoredChange,
        takes_batches: bool,
        room: &ReplyRoom,
    ) -> Result<(), Damaged> {
        let collection = change.path.collection().clone();
        let batch = self
            .batches
            .entry(collection)
            .or_insert_with(|| takes_batches.then(|| (Vec::new(), room.count(0))));
        let Some((events, permit)) = batch else { return Ok(()) };
        let bytes = permit.bytes().saturating_add(change.len());
        let more = (bytes <= LIVE_BATCH_BYTES).then(|| room.try_acquire(change.len())).flatten();
        let Some(more) = more else {
            *batch = None;
            return Ok(());
        };
        permit.join(more);
        let content = change.content(reader)?;
        let images = ChangeImages::parse(&content)
            .map_err(|error| Damaged(format!("change {} is damaged: {error}", change.seq)))?;
        let news = match images.after() {
            Some(json) => LiveNews::Changed(change.kind, Bytes::copy_from_slice(json.as_bytes())),
            None => LiveNews::Removed,
        };
        let place = LivePlace { seq: change.seq, extent: Extent::Everything };
        events.push(LiveEvent { place, id: change.path.id().clone(), news });
        Ok(())
    }
}

impl Followers {
    fn enter(&mut self, collection: &CollectionPath) -> Option<(u64, Arc<Notify>)> {
        if self.is_over {
            return None;
        }
        self.next_no += 1;
        let (no, arrived) = (self.next_no, Arc::new(Notify::new()));
        let mailbox = Mailbox {
            collection: collection.clone(),
            lookups: BTreeSet::new(),
            takes_batches: false,
            batches: VecDeque::new(),
            is_behind: false,
            arrived: arrived.clone(),
        };
        self.mailboxes.insert(no, mailbox);
        self.by_collection.entry(collection.clone()).or_default().insert(no);
        Some((no, arrived))
    }

    /// Whoever has just asked for a hub has not come in yet: it waits for them.
    fn end_if_idle(&mut self) -> bool {
        self.is_over = self.next_no > 0 && self.mailboxes.is_empty();
        self.is_over
    }

    fn leave(&mut self, no: u64) {
        let Some(mailbox) = self.mailboxes.remove(&no) else { return };
        remove_from(&mut self.by_collection, &mailbox.collection, no);
        for path in &mailbox.lookups {
            remove_from(&mut self.by_lookup, path, no);
        }
    }

    /// The collections of these changes that are followed, and whether somebody takes their changes
    /// as they are; the documents of them that rules have looked at.
    fn wanted(
        &self,
        changes: &[StoredChange],
    ) -> (HashMap<CollectionPath, bool>, HashSet<DocumentPath>) {
        let takes = |no: &u64| self.mailboxes.get(no).is_some_and(|mailbox| mailbox.takes_batches);
        let (mut collections, mut lookups) = (HashMap::new(), HashSet::new());
        for StoredChange { path, .. } in changes {
            if self.by_lookup.contains_key(path) {
                lookups.insert(path.clone());
            }
            if let Some(nos) = self.by_collection.get(path.collection())
                && !collections.contains_key(path.collection())
            {
                collections.insert(path.collection().clone(), nos.iter().any(takes));
            }
        }
        (collections, lookups)
    }

    fn deliver(&mut self, slice: Slice, rules: Option<u64>) {
        self.through = slice.through;
        for path in &slice.lookups {
            for no in self.by_lookup.get(path).into_iter().flatten() {
                if let Some(mailbox) = self.mailboxes.get_mut(no) {
                    mailbox.fall_behind();
                }
            }
        }
        for (collection, batch) in slice.batches {
            let batch = batch.map(|(events, permit)| {
                let (through, encoded) = (slice.through, OnceLock::new());
                Arc::new(ChangeBatch { through, events, encoded, rules, _permit: permit })
            });
            for no in self.by_collection.get(&collection).into_iter().flatten() {
                let Some(mailbox) = self.mailboxes.get_mut(no) else { continue };
                match &batch {
                    Some(batch) if mailbox.takes_batches => mailbox.put(batch),
                    _ => mailbox.fall_behind(),
                }
            }
        }
    }

    fn tell_all(&mut self) {
        self.mailboxes.values_mut().for_each(Mailbox::fall_behind);
    }
}

fn remove_from<K: std::hash::Hash + Eq>(map: &mut HashMap<K, BTreeSet<u64>>, key: &K, no: u64) {
    if let Some(nos) = map.get_mut(key) {
        nos.remove(&no);
        if nos.is_empty() {
            map.remove(key);
        }
    }
}

impl Mailbox {
    fn put(&mut self, batch: &Arc<ChangeBatch>) {
        if self.is_behind {
            return;
        }
        if self.batches.len() >= LIVE_BATCHES {
            return self.fall_behind();
        }
        self.batches.push_back(batch.clone());
        self.arrived.notify_one();
    }

    fn fall_behind(&mut self) {
        self.batches.clear();
        self.is_behind = true;
        self.arrived.notify_one();
    }
}

impl ChangeBatch {
    /// Which rules there are.
    pub(super) fn rules(&self) -> Option<u64> {
        self.rules
    }
}

impl LiveWatch {
    /// Whether it takes changes as they are, and which other documents it must hear of. Says whether
    /// these are others than before: then whoever follows must look once more.
    pub(super) fn want(&self, takes_batches: bool, lookups: &BTreeSet<DocumentPath>) -> bool {
        let mut followers = self.hub.lock();
        let Followers { mailboxes, by_lookup, .. } = &mut *followers;
        let Some(mailbox) = mailboxes.get_mut(&self.no) else { return false };
        mailbox.takes_batches = takes_batches;
        if mailbox.lookups == *lookups {
            return false;
        }
        for path in &mailbox.lookups {
            remove_from(by_lookup, path, self.no);
        }
        for path in lookups {
            by_lookup.entry(path.clone()).or_default().insert(self.no);
        }
        mailbox.lookups.clone_from(lookups);
        true
    }

    /// Waits for the next mail.
    pub(super) async fn next(&self) -> Mail {
        loop {
            if let Some(mail) = self.take() {
                return mail;
            }
            self.arrived.notified().await;
        }
    }

    fn take(&self) -> Option<Mail> {
        let mut followers = self.hub.lock();
        let mailbox = followers.mailboxes.get_mut(&self.no)?;
        if std::mem::take(&mut mailbox.is_behind) {
            return Some(Mail::Behind);
        }
        mailbox.batches.pop_front().map(Mail::Batch)
    }

    /// Forgets what has arrived: whoever looks after this finds it.
    pub(super) fn clear(&self) {
        while self.take().is_some() {}
    }

    /// The last change of which it was told if it concerns it; none if there is mail.
    pub(super) fn through(&self) -> Option<u64> {
        let followers = self.hub.lock();
        let mailbox = followers.mailboxes.get(&self.no)?;
        let is_empty = mailbox.batches.is_empty() && !mailbox.is_behind;
        is_empty.then_some(followers.through)
    }
}

impl Drop for LiveWatch {
    fn drop(&mut self) {
        let mut followers = self.hub.lock();
        followers.leave(self.no);
        if followers.mailboxes.is_empty() {
            drop(followers);
            self.hub.wake.notify_one();
        }
    }
}
