//! Those who follow a collection: one step after another, cut off and back at any moment. Whatever
//! they have is right as of the change that they have come to.

use std::collections::BTreeMap;
use std::sync::Arc;

use reveille_core::document::change::ChangeKind;
use reveille_core::document::filter::Filter;
use reveille_core::document::live::LivePlace;
use reveille_core::document::path::{CollectionPath, DocumentId};
use reveille_core::document::rules::RuleAuth;
use reveille_core::{Millis, Tenant};
use reveille_engine::documents::live::{LiveEvent, LiveLook, LiveNews, LivePicture, LiveStep};
use reveille_kernel::doors::{Clock, Sleep};

use super::Documents;
use super::model::TenantModel;
use crate::base::raw_state::unreadable;
use crate::base::{CheckResult, violation};

/// At once.
const FOLLOWERS_MAX: usize = 6;
/// More steps than it takes to come up with everything.
const STEPS_MAX: u32 = 10_000;

const COLLECTIONS: [&str; 5] =
    ["rooms", "rooms/1/messages", "rooms/2/messages", "users", "nowhere"];

/// Somebody who follows a collection.
pub(super) struct Follower {
    tenant: Tenant,
    collection: &'static str,
    /// Whether only documents of a second version and later are followed.
    is_filtered: bool,
    picture: LivePicture,
    /// The documents, as JSON, by id.
    known: BTreeMap<DocumentId, String>,
    /// How far the last event has come.
    told: LivePlace,
}

/// A clock that stands still.
struct Still(Millis);

impl Clock for Still {
    fn now(&self) -> Millis {
        self.0
    }

    fn wall(&self) -> Millis {
        self.0
    }

    fn sleep_until(&self, _: Millis) -> Sleep {
        Box::pin(std::future::pending())
    }
}

impl Documents {
    /// Somebody takes a step, comes or comes back.
    pub(super) fn follow(&mut self) -> CheckResult {
        let random = &mut self.base.random;
        if self.followers.len() < FOLLOWERS_MAX && random.percent(20) {
            let tenant = random.pick(&self.tenants).clone();
            let collection = *random.pick(&COLLECTIONS);
            self.followers.push(Follower::new(tenant, collection, random.percent(40)));
        }
        if self.followers.is_empty() {
            return Ok(());
        }
        let count = self.followers.len() as u64;
        let at = usize::try_from(random.below(count)).expect("a small number");
        if random.percent(2) {
            self.followers.swap_remove(at);
            return Ok(());
        }
        if random.percent(10)
            && let Some(follower) = self.followers.get_mut(at)
        {
            follower.come_back();
        }
        let limits = (*random.pick(&[1, 2, 500]), *random.pick(&[1, 300, 64 << 10]));
        self.step(at, limits).map(drop)
    }

    /// In the end everybody has everything.
    pub(super) fn all_have_come_up(&mut self) -> CheckResult {
        for at in 0..self.followers.len() {
            for steps in 0.. {
                if self.step(at, (2, 300))? {
                    break;
                }
                if steps > STEPS_MAX {
                    return Err(violation("somebody who follows never comes up"));
                }
            }
        }
        Ok(())
    }

    /// Says whether it has everything.
    fn step(&mut self, at: usize, (documents, bytes): (usize, usize)) -> CheckResult<bool> {
        let look = LiveLook {
            reader: self.base.reader(),
            clock: Arc::new(Still(self.base.now)),
            rules: None,
            scan_limit: self.ttls().scan_limit,
            room: usize::MAX,
            documents,
            bytes,
        };
        let nothing = TenantModel::default();
        let Some(follower) = self.followers.get_mut(at) else { return Ok(true) };
        let model = self.durable.tenants.get(&follower.tenant).unwrap_or(&nothing);
        let step = follower.picture.advance(&look);
        let is_done = match step.map_err(unreadable)? {
            LiveStep::Events { events, is_current, .. } => {
                for event in events {
                    follower.hear(event)?;
                }
                is_current
            }
            LiveStep::Reset(_) => {
                let is_kept = follower.told.seq <= model.changes.len() as u64
                    && !self.cutoffs.contains_key(&follower.tenant);
                if is_kept {
                    return Err(violation("nothing was forgotten, and it is to begin anew"));
                }
                follower.known.clear();
                follower.told = LivePlace::START;
                false
            }
            step => return Err(violation(format!("nobody asked for {step:?}"))),
        };
        follower.check(model, is_done)?;
        Ok(is_done)
    }
}

impl Follower {
    fn new(tenant: Tenant, collection: &'static str, is_filtered: bool) -> Follower {
        let picture = picture(&tenant, collection, is_filtered, None);
        let (known, told) = (BTreeMap::new(), LivePlace::START);
        Follower { tenant, collection, is_filtered, picture, known, told }
    }

    /// With the id of the last event that it has heard.
    fn come_back(&mut self) {
        let id = self.told.to_string();
        let from = (!id.is_empty()).then(|| id.parse().expect("an id that was sent"));
        self.picture = picture(&self.tenant, self.collection, self.is_filtered, from);
        if id.is_empty() {
            self.known.clear();
        }
    }

    fn hear(&mut self, event: LiveEvent) -> CheckResult {
        let text = |json: &[u8]| String::from_utf8(json.to_vec()).expect("is JSON");
        let (before, is_known) = (self.told.seq, self.known.contains_key(&event.id));
        let is_news = event.place.seq > before;
        let is_right = match &event.news {
            LiveNews::Document(_) => !is_known && event.place.seq >= before,
            LiveNews::Changed(ChangeKind::Create, _) => !is_known && is_news,
            LiveNews::Changed(_, _) => is_news && (is_known || self.is_filtered),
            LiveNews::Removed => is_known && is_news,
        };
        if !is_right {
            let Follower { told, known, .. } = self;
            return Err(violation(format!("{event:?} after {told:?}, which had {known:?}")));
        }
        match event.news {
            LiveNews::Document(json) | LiveNews::Changed(_, json) => {
                self.known.insert(event.id, text(&json));
            }
            LiveNews::Removed => drop(self.known.remove(&event.id)),
        }
        self.told = event.place;
        Ok(())
    }

    /// What it has is what the model has, as far as it has come.
    fn check(&mut self, model: &TenantModel, is_done: bool) -> CheckResult {
        let place = self.picture.place();
        if is_done {
            // It is told so.
            self.told = place.clone();
        }
        let last = model.changes.len() as u64;
        if place.seq != last {
            return if is_done { Err(violation(format!("{place:?} is not all"))) } else { Ok(()) };
        }
        let mut expected = BTreeMap::new();
        for (path, document) in &model.documents {
            let (collection, id) = path.rsplit_once('/').expect("a path has an id");
            let id = DocumentId::parse(id).expect("an id");
            let is_followed = collection == self.collection && document.data.is_some();
            let is_shown = !self.is_filtered || document.version >= 2;
            if is_followed && is_shown && place.covers(&id) {
                let json = document.shown(collection, id.as_str());
                expected.insert(id, json);
            }
        }
        if self.known == expected {
            return Ok(());
        }
        let known = &self.known;
        Err(violation(format!("at {place:?} it has {known:?} and should have {expected:?}")))
    }
}

fn picture(
    tenant: &Tenant,
    collection: &str,
    is_filtered: bool,
    from: Option<LivePlace>,
) -> LivePicture {
    let filter = || Filter::new("version", ">=", 2.into()).expect("a filter");
    let filters = is_filtered.then(filter).into_iter().collect();
    let collection = CollectionPath::parse(collection).expect("a collection");
    LivePicture::new(tenant.clone(), RuleAuth::local(), collection, filters, from).expect("a query")
}
