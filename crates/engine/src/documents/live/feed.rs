//! What somebody is sent who follows a collection: what there is, then what becomes of it.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::document::filter::Filter;
use reveille_core::document::live::LivePlace;
use reveille_core::document::path::CollectionPath;
use reveille_core::document::query::QueryError;
use reveille_kernel::error::Damaged;
use reveille_kernel::limits::PAGE_BYTES_MAX;
use reveille_kernel::reply_budget::ReplyPermit;
use reveille_kernel::{fairness, task};

use super::changes::change_head;
use super::hub::{ChangeBatch, LiveQueries, LiveWatch, Mail};
use super::picture::{LiveEvent, LiveLook, LivePicture, LiveStep, ResetReason};
use crate::documents::DocumentCaller;
use crate::documents::error::DocumentError;
use crate::documents::queries::DOCUMENTS_PER_APPEND;
use crate::engine::Engine;
use crate::limits::{LIVE_DOCUMENTS, LIVE_STEP_BYTES};

/// A document as it is in memory takes more than its bytes.
const ROOM_PER_BYTE: usize = 4;

/// Somebody who follows the documents of a collection.
pub struct LiveFeed {
    engine: Engine,
    caller: DocumentCaller,
    picture: LivePicture,
    watch: LiveWatch,
    scan_limit: u64,
    has_begun: bool,
    /// Whether everything was read that was there at the last look.
    is_current: bool,
    /// Whether it was said that everything is there.
    is_ready: bool,
    /// The largest change for which there will be room.
    change_bytes: usize,
}

/// What is sent next.
pub enum LiveUpdate {
    /// These, for which there is room.
    Events(Vec<LiveEvent>, ReplyPermit),
    /// These, which others are sent as well.
    Shared(Arc<ChangeBatch>),
    /// Everything is there up to this change.
    Ready(u64),
    /// Everything is sent again.
    Reset(ResetReason),
    /// Nothing now.
    Nothing,
}

impl Engine {
    /// The last change of a tenant's documents; zero if there was none.
    pub fn document_seq(&self, tenant: &Tenant) -> Result<u64, Damaged> {
        Ok(change_head(&self.partition(tenant).state.reader(), tenant)?.seq)
    }

    /// The documents of a collection that match, and what becomes of them; from the beginning, or
    /// from a place to which somebody has come.
    pub fn follow_documents(
        &self,
        caller: &DocumentCaller,
        collection: &CollectionPath,
        filters: Vec<Filter>,
        from: Option<LivePlace>,
    ) -> Result<Result<LiveFeed, QueryError>, Damaged> {
        let (tenant, auth) = (caller.tenant.clone(), caller.auth.clone());
        self.fairness().request(&tenant, fairness::TAKEN_IN);
        let picture = LivePicture::new(tenant, auth, collection.clone(), filters, from);
        let picture = match picture {
            Ok(picture) => picture,
            Err(error) => return Ok(Err(error)),
        };
        let (shared, room) = (self.partition(&caller.tenant), self.reply_room(&caller.tenant));
        let watch = LiveQueries::watch(shared, &caller.tenant, collection, room)?;
        Ok(Ok(LiveFeed {
            engine: self.clone(),
            caller: caller.clone(),
            picture,
            watch,
            scan_limit: self.document_settings().scan_limit,
            has_begun: false,
            is_current: false,
            is_ready: false,
            change_bytes: LIVE_STEP_BYTES,
        }))
    }
}

impl LiveFeed {
    /// How far it has come.
    pub fn place(&self) -> &LivePlace {
        self.picture.place()
    }

    /// What is next; waits for it. Whoever stops waiting loses nothing as long as it
    /// [`is_waiting`](LiveFeed::is_waiting).
    pub async fn next(&mut self) -> Result<LiveUpdate, DocumentError> {
        if !self.is_current {
            return self.read_on().await;
        }
        if !self.is_ready {
            self.is_ready = true;
            return Ok(LiveUpdate::Ready(self.picture.place().seq));
        }
        let clock = self.engine.clock();
        let stale = async {
            match self.picture.stale_until() {
                Some(until) => clock.sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        let mail = tokio::select! {
            biased;
            mail = self.watch.next() => mail,
            () = stale => Mail::Behind,
        };
        Ok(match mail {
            Mail::Batch(batch) => self.take(batch),
            Mail::Behind => {
                self.is_current = false;
                LiveUpdate::Nothing
            }
        })
    }

    /// Whether it waits for something to happen.
    pub fn is_waiting(&self) -> bool {
        self.is_current && self.is_ready
    }

    /// It has been silent for a while: it has come to wherever everybody was told of.
    pub fn note_silence(&mut self) {
        if let Some(seq) = self.watch.through().filter(|_| self.is_waiting()) {
            self.picture.has_all_until(seq);
        }
    }

    fn take(&mut self, batch: Arc<ChangeBatch>) -> LiveUpdate {
        let seq = self.picture.place().seq;
        let first = batch.events.first().map_or(0, |event| event.place.seq);
        if batch.through <= seq {
            return LiveUpdate::Nothing;
        }
        if first <= seq || !self.picture.is_plain(batch.rules()) {
            self.is_current = false;
            return LiveUpdate::Nothing;
        }
        self.picture.has_all_until(batch.through);
        LiveUpdate::Shared(batch)
    }

    /// Reads what is durable, once there is room for it.
    async fn read_on(&mut self) -> Result<LiveUpdate, DocumentError> {
        let engine = self.engine.clone();
        let tenant = &self.caller.tenant;
        // Whoever uses much waits a little; that there is no turn for long is no failure of theirs.
        let _ = engine.turn(tenant).await;
        let change_bytes = std::mem::replace(&mut self.change_bytes, LIVE_STEP_BYTES);
        let needs = match change_bytes {
            // A document that is read may be the largest there is.
            LIVE_STEP_BYTES if !self.picture.place().is_whole() => PAGE_BYTES_MAX,
            LIVE_STEP_BYTES => LIVE_STEP_BYTES,
            large => large.saturating_mul(ROOM_PER_BYTE),
        };
        let room = engine.reply_room(tenant);
        let permit = match std::mem::replace(&mut self.has_begun, true) {
            true => room.acquire(needs).await,
            // Who waits for an answer is told when it takes too long.
            false => room.admit(needs, engine.clock().as_ref()).await?,
        };
        // What arrives from here on may be after the look; what was there is in it.
        self.watch.clear();
        let rules = engine.rules_for(&self.caller).await?;
        let look = LiveLook {
            reader: engine.partition(tenant).state.reader(),
            clock: engine.clock().clone(),
            rules,
            scan_limit: self.scan_limit,
            room: change_bytes,
            documents: LIVE_DOCUMENTS,
            bytes: LIVE_STEP_BYTES,
        };
        let mut picture = self.picture.clone();
        let (picture, step) = task::blocking(move || {
            let step = picture.advance(&look);
            (picture, step)
        })
        .await;
        self.picture = picture;
        match step? {
            LiveStep::Events { events, is_current, work } => {
                engine.fairness().request(tenant, work / DOCUMENTS_PER_APPEND);
                let takes_batches = self.picture.is_plain(None);
                let looks_again = self.watch.want(takes_batches, self.picture.lookups());
                self.is_current = is_current && !looks_again;
                Ok(LiveUpdate::Events(events, permit))
            }
            LiveStep::Reset(reason) => {
                self.is_ready = false;
                Ok(LiveUpdate::Reset(reason))
            }
            LiveStep::OtherRules => {
                // They have just become durable, and are known in a moment.
                tokio::task::yield_now().await;
                Ok(LiveUpdate::Nothing)
            }
            LiveStep::NeedsRoom(bytes) => {
                self.change_bytes = bytes;
                Ok(LiveUpdate::Nothing)
            }
        }
    }
}

impl std::fmt::Debug for LiveFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveFeed").field("picture", &self.picture).finish_non_exhaustive()
    }
}
