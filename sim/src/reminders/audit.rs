//! What must be true of what is durable: everybody who is owed something has a delivery of it, lanes
//! have one in turn, and records, marks, counts and timers agree.

use std::collections::{BTreeMap, BTreeSet};

use reveille_core::Millis;
use reveille_core::delivery::hook::{
    DeliveryCounts, EndedHook, Hook, HookId, OpenDeliveries, Standing,
};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::delivery::lane;
use reveille_core::delivery::{AttemptRecord, DeadReason, DropReason, ErrorKind, Letters, Phase};
use reveille_engine::deliveries::explain::{Absence, Age, Reason, Rest, explain};
use reveille_engine::deliveries::face::EventMatch;
use reveille_schema::record::DeliveryRecord;

use super::Reminders;
use super::face::{BACKOFF, FACE, Occurrence, POISON, Style};
use super::model::HookModel;
use super::snapshot::Snapshot;
use crate::base::raw_state::unreadable;
use crate::base::{CheckResult, violation};

impl Reminders {
    /// What became of deliveries from one batch to the next.
    pub(super) fn check_changes(&self, now: &Snapshot) -> CheckResult {
        for (id, before) in &self.seen.deliveries {
            let wrong = |what: &str| Err(violation(format!("{id:?} {what}: {before:?}")));
            let Some(after) = now.deliveries.get(id) else {
                let is_dead = matches!(before.delivery.phase, Phase::Dead { .. });
                let outlives = now.ended.contains_key(&id.hook) && is_dead && !self.is_forgetting;
                if now.hooks.contains_key(&id.hook) || outlives {
                    return wrong("is forgotten");
                }
                continue;
            };
            if !after.delivery.attempts.starts_with(&before.delivery.attempts) {
                return wrong("has another past");
            }
            if before.delivery.ended_at().is_some() && after.delivery != before.delivery {
                return wrong("goes on after its end");
            }
        }
        Ok(())
    }

    pub(super) fn audit_state(&self) -> CheckResult {
        self.audit_reminders()?;
        self.audit_events()?;
        self.audit_hooks()?;
        for hook in self.seen.hooks.values() {
            self.audit_versions(hook)?;
            self.audit_owed(hook)?;
            self.audit_lanes(hook)?;
            self.audit_counts(hook)?;
            for (id, it) in self.seen.of(hook.id) {
                self.audit_delivery(hook, *id, it)?;
            }
        }
        for ended in self.seen.ended.values() {
            self.audit_ended(ended)?;
        }
        self.audit_replays()?;
        self.audit_marks()?;
        let left = self.seen.deliveries.keys().map(|id| id.hook);
        let is_known = |hook: &HookId| {
            let is_cleared = self.seen.ended.get(hook).is_some_and(|it| it.is_cleared);
            self.seen.hooks.contains_key(hook) || is_cleared
        };
        let mut left = left.filter(|hook| !is_known(hook));
        match left.find(|hook| !self.seen.unhooks.contains(hook)) {
            Some(hook) => Err(violation(format!("nobody removes what {hook:?} left"))),
            None => Ok(()),
        }
    }

    /// What is set and what has come is what the model says; whatever is set is in the due index.
    fn audit_reminders(&self) -> CheckResult {
        let came: BTreeSet<_> = self.seen.came.values().map(|it| &it.name).collect();
        if !came.iter().copied().eq(self.durable.came.keys()) || came.len() != self.seen.came.len()
        {
            return Err(violation(format!("what has come is {came:?}")));
        }
        if !self.seen.set.iter().eq(self.durable.set.keys()) {
            return Err(violation(format!("what is set is {:?}", self.seen.set)));
        }
        let timers = self.durable.set.iter().map(|(name, (of, _))| (of.clone(), name.clone()));
        match timers.into_iter().find(|timer| !self.seen.reminds.contains(timer)) {
            Some(timer) => Err(violation(format!("nobody reminds of {timer:?}"))),
            None => Ok(()),
        }
    }

    /// An event is kept for whatever came, and somebody goes on with the oldest one that not
    /// everybody was told of.
    fn audit_events(&self) -> CheckResult {
        for (no, record) in &self.seen.events {
            let came = self.seen.came.get(no);
            if came.is_none_or(|it| {
                it.name != record.id || Some(&it.subject) != record.subject.as_ref()
            }) {
                return Err(violation(format!("{record:?} is of {came:?}")));
            }
        }
        if !self.seen.events.keys().eq(self.seen.came.keys()) {
            return Err(violation(format!("events are {:?}", self.seen.events)));
        }
        let mut tenants = BTreeSet::new();
        for no in self.seen.fan_outs.keys() {
            let tenant = self.durable.came.get(&self.seen.came[no].name).map(|(tenant, _)| tenant);
            if tenants.insert(tenant) && !self.seen.going_on.contains(no) {
                return Err(violation(format!("nobody goes on with {no:?}")));
            }
        }
        Ok(())
    }

    fn audit_hooks(&self) -> CheckResult {
        let active = |hook: &Hook| self.durable.hooks.get(&hook.name).map(|it| it.is_active);
        let mut hooks = self.seen.hooks.values();
        if let Some(hook) =
            hooks.find(|hook| active(hook) != Some(hook.is_active()) || hook.face != FACE)
        {
            return Err(violation(format!("wrongly there, or wrongly active: {hook:?}")));
        }
        if self.seen.hooks.len() != self.durable.hooks.len() {
            return Err(violation("hooks are missing"));
        }
        Ok(())
    }

    /// A hook has as many versions as its owner has wished, and those are kept that deliveries may
    /// follow.
    fn audit_versions(&self, hook: &Hook) -> CheckResult {
        let known = &self.durable.hooks[&hook.name];
        let mine = (hook.id, 0)..(hook.id, u64::MAX);
        let kept = self.seen.formers.range(mine).map(|((_, version), _)| *version);
        let expected = if known.spec().style.is_matched() { 1..hook.version } else { 1..1 };
        if hook.version != known.versions.len() as u64 || !kept.eq(expected) {
            return Err(violation(format!("{} has other versions: {hook:?}", hook.name)));
        }
        Ok(())
    }

    /// A hook has one delivery of everything that it is owed, and of nothing else.
    fn audit_owed(&self, hook: &Hook) -> CheckResult {
        let owed = &self.durable.hooks[&hook.name].owed;
        let mut found = BTreeSet::new();
        for (id, it) in self.seen.of(hook.id) {
            let Some(came) = self.seen.came.get(&id.no.event) else {
                return Err(violation(format!("{id:?} is of nothing")));
            };
            match id.no.round.checked_sub(1) {
                None => drop(found.insert(came.name.clone())),
                Some(round) => {
                    let before = DeliveryId { no: DeliveryNo { round, ..id.no }, ..*id };
                    let before = self.seen.deliveries.get(&before);
                    let before = before.filter(|it| it.retried && !it.discarded);
                    let Some(before) = before else {
                        return Err(violation(format!("nobody asked for {id:?}")));
                    };
                    let replay = it.replay.map(|replay| &self.seen.replays[&replay]);
                    let is_original = replay.is_some_and(|replay| replay.selection.original);
                    if is_original && before.hook_version != it.hook_version {
                        return Err(violation(format!("{id:?} is of another version")));
                    }
                }
            }
        }
        // Whoever has not been told yet is behind a cursor.
        let waits = |(no, it): (&EventNo, &Occurrence)| {
            let told = self.seen.fan_outs.get(no)?;
            (*told < hook.id.0 && owed.contains(&it.name)).then(|| it.name.clone())
        };
        found.extend(self.seen.came.iter().filter_map(waits));
        if found != *owed {
            return Err(violation(format!("{} has {found:?}, and is owed {owed:?}", hook.name)));
        }
        Ok(())
    }

    /// What the server says about an event and a hook is what the model knows: whoever is owed it is
    /// never told that it does not match, and everybody else is told why not.
    pub(super) fn audit_explanations(&self) -> CheckResult {
        let shared = self.base.engine().shared();
        for hook in self.seen.hooks.values() {
            let known = &self.durable.hooks[&hook.name];
            for (no, event) in &self.seen.events {
                let is_mine =
                    self.durable.came.get(&event.id).map(|it| &it.0) == Some(&hook.tenant);
                let reasons =
                    explain(shared, hook, *no, event, (Millis(0), 0)).map_err(unreadable)?;
                let is_explained = !reasons.iter().any(says_no);
                let is_behind = |reason: &Reason| match reason {
                    Reason::Rest(Rest::Queued { head }) => head.is_some_and(|head| {
                        self.seen
                            .lanes
                            .iter()
                            .any(|((of, _), lane)| *of == head.hook && lane.head == head.no)
                    }),
                    _ => true,
                };
                if !reasons.iter().all(is_behind) {
                    return Err(violation(format!("nobody is before {no:?}: {reasons:?}")));
                }
                if is_mine && is_explained != known.owed.contains(&event.id) {
                    let name = &hook.name;
                    return Err(violation(format!("{name} and {no:?} are explained: {reasons:?}")));
                }
            }
        }
        Ok(())
    }

    /// In each lane one has its turn and all others wait.
    fn audit_lanes(&self, hook: &Hook) -> CheckResult {
        let is_ordered = self.durable.hooks[&hook.name].spec().style.is_ordered();
        let mut open: BTreeMap<u64, Vec<(DeliveryId, Phase)>> = BTreeMap::new();
        for (id, it) in self.seen.of(hook.id) {
            let subject = &self.seen.came[&id.no.event].subject;
            if it.lane != is_ordered.then(|| lane::number(Some(subject))) {
                return Err(violation(format!("{id:?} of {subject} is in another lane: {it:?}")));
            }
            if it.delivery.ended_at().is_none() && is_ordered {
                let lane = open.entry(lane::number(Some(subject))).or_default();
                lane.push((*id, it.delivery.phase));
            }
        }
        let mine = self.seen.lanes.iter().filter(|((of, _), _)| *of == hook.id);
        let lanes: BTreeMap<u64, _> = mine.map(|((_, number), lane)| (*number, lane)).collect();
        if !lanes.keys().eq(open.keys()) {
            return Err(violation(format!("{} has lanes {lanes:?} of {open:?}", hook.name)));
        }
        for (number, lane) in lanes {
            let all = &open[&number];
            let (queued, in_turn): (Vec<_>, Vec<_>) =
                all.iter().partition(|(_, phase)| *phase == Phase::Queued);
            let head = in_turn.first().map(|(id, _)| id.no);
            let waiting = queued.len() as u64;
            if in_turn.len() != 1 || head != Some(lane.head) || lane.waiting != waiting {
                return Err(violation(format!("{} has lane {lane:?} of {all:?}", hook.name)));
            }
            let first = queued.iter().map(|(id, _)| id.no).take(lane.next.len());
            if !first.eq(lane.next.iter().copied()) {
                return Err(violation(format!("{} has others next in {lane:?}", hook.name)));
            }
            let is_marked = |id: DeliveryId| self.seen.waiting.contains(&(hook.id, number, id.no));
            let waits_unknown = |id: &DeliveryId, phase: &Phase| {
                *phase == Phase::Queued && !lane.next.contains(&id.no)
            };
            if let Some((id, _)) =
                all.iter().find(|(id, phase)| is_marked(*id) != waits_unknown(id, phase))
            {
                return Err(violation(format!("{id:?} waits and does not")));
            }
        }
        Ok(())
    }

    /// Nothing is ever forgotten here: counts are what the records say.
    fn audit_counts(&self, hook: &Hook) -> CheckResult {
        let mut counts = DeliveryCounts::default();
        for (_, it) in self.seen.of(hook.id) {
            counts.begun += 1;
            counts.kept += 1;
            counts.attempts += it.delivery.attempts.len() as u64;
            match it.delivery.standing() {
                Standing::Pending => counts.pending += 1,
                Standing::Failed => counts.failed += 1,
                Standing::Delivered => counts.delivered += 1,
                Standing::Dead => {
                    counts.died += 1;
                    counts.dead_letters += u64::from(!it.retried);
                }
                Standing::Dropped => counts.dropped += 1,
            }
        }
        counts.logs = counts.attempts;
        let kept = self.seen.counts.get(&hook.id).copied().unwrap_or_default();
        // Which attempt came last is not told by records.
        let kept = DeliveryCounts { failing_since: None, ..kept };
        if kept != counts {
            return Err(violation(format!("{} counts {kept:?}, not {counts:?}", hook.name)));
        }
        Ok(())
    }

    /// A delivery follows the policy of this face, and what must happen by itself is in the due
    /// index.
    fn audit_delivery(&self, hook: &Hook, id: DeliveryId, it: &DeliveryRecord) -> CheckResult {
        let wrong = |what: &str| Err(violation(format!("{id:?} {what}: {it:?}")));
        if it.delivery.deadline().is_some_and(|at| !self.seen.looks.contains(&(at, id))) {
            return wrong("is looked at by nobody");
        }
        let attempts = &it.delivery.attempts;
        if !(1..).zip(attempts).all(|(number, attempt)| attempt.number == number) {
            return wrong("has attempts that are not numbered one after another");
        }
        let known = &self.durable.hooks[&hook.name];
        let topic = self.seen.came[&id.no.event].topic;
        match known.version(it.hook_version) {
            None => return wrong("is of a version that there never was"),
            Some(began) if id.no.round == 0 && !began.wants(topic) => {
                return wrong("was matched by another version");
            }
            Some(_) => {}
        }
        if self.follows_rules(known, id, it) { Ok(()) } else { wrong("does not follow the rules") }
    }

    fn follows_rules(&self, known: &HookModel, id: DeliveryId, it: &DeliveryRecord) -> bool {
        let style = known.spec().style;
        let attempts = &it.delivery.attempts;
        let count = attempts.len();
        let last = attempts.last();
        let status = last.and_then(|last| last.status);
        let kind = last.and_then(|last| last.kind);
        let all = known.versions.iter().map(|spec| usize::from(spec.attempts));
        let (least, most) = match known.version(it.hook_version) {
            Some(began) if style.is_matched() => (began.attempts.into(), began.attempts.into()),
            _ => (all.clone().min().unwrap_or(0), all.max().unwrap_or(0)),
        };
        let is_used_up = (least..=most).contains(&count);
        let poisoned = is_poisoned(style, attempts);
        match it.delivery.phase {
            Phase::Delivered { .. } if style.is_append() => self.was_appended(id, it),
            Phase::Delivered { .. } => status == Some(200) && self.accepted.contains(&id),
            Phase::Dead { why, .. } => match why {
                DeadReason::Exhausted => {
                    let others = [Some(ErrorKind::Secret), Some(ErrorKind::Blocked)];
                    is_used_up && !others.contains(&kind) && !poisoned
                }
                DeadReason::SecretMissing => is_used_up && kind == Some(ErrorKind::Secret),
                DeadReason::Refused => {
                    let of_streams = [ErrorKind::StreamClosed, ErrorKind::StreamMismatch];
                    let is_rejected = kind.is_some_and(|kind| of_streams.contains(&kind));
                    let is_refused = matches!(status, Some(403 | 404 | 451));
                    (is_refused || is_rejected) && !style.has_rules()
                }
                DeadReason::Blocked => {
                    kind == Some(ErrorKind::Blocked) && (is_used_up || style.has_rules())
                }
                DeadReason::Corrupt => {
                    (status, kind) == (None, None) && last.is_some() && style.has_rules()
                }
                DeadReason::HeadersTooLarge => kind == Some(ErrorKind::Size),
                DeadReason::Expired => self.ever_expired.contains(&id.hook),
                DeadReason::Redirect => status == Some(302) && style.has_rules(),
                DeadReason::PayloadTooLarge => kind == Some(ErrorKind::Size) && style.is_short(),
                DeadReason::Poison => poisoned,
                _ => false,
            },
            Phase::Dropped { why: DropReason::NotOwed, .. } => self.may_be_dropped(id),
            Phase::Dropped { why: DropReason::Status, .. } => {
                let is_closed = kind == Some(ErrorKind::StreamClosed) && !style.ends_when_closed();
                (status == Some(404) || is_closed) && style.has_rules()
            }
            // Its hook is gone with it.
            Phase::Dropped { why: DropReason::Cancelled, .. } => false,
            Phase::Pending { at } => {
                let is_late =
                    |last: &AttemptRecord| at >= last.at + self.pause_ms(style, count, last);
                last.is_some_and(is_late) && count < most && !poisoned
            }
            Phase::Queued => attempts.is_empty(),
            Phase::Held | Phase::Leased { .. } => count < most && !poisoned,
        }
    }

    /// The shortest pause after so many attempts. Chance takes up to half of it.
    fn pause_ms(&self, style: Style, count: usize, last: &AttemptRecord) -> u64 {
        let doubled = BACKOFF.base_ms << (count - 1);
        let pause = doubled.min(BACKOFF.cap_ms) / 2 * self.retry_scale_milli() / 1_000;
        let asked = last.retry_after_s.filter(|_| style.is_patient());
        pause.max(asked.map_or(0, |seconds| (seconds * 1_000).min(BACKOFF.cap_ms)))
    }

    fn may_be_dropped(&self, id: DeliveryId) -> bool {
        let subject = &self.seen.came[&id.no.event].subject;
        let tenant = &self.seen.hooks[&id.hook].tenant;
        self.ever_muted.contains(&(tenant.clone(), subject.clone()))
    }

    /// A hook has ended as its owner, its endpoint or its gate has said, and when it is cleared up its
    /// dead letters are left, and nothing else.
    fn audit_ended(&self, ended: &EndedHook) -> CheckResult {
        let EndedHook { hook, open, is_cleared, .. } = ended;
        let wrong = |what: &str| Err(violation(format!("{} {what}: {ended:?}", hook.name)));
        if hook.policy.letters != Letters::OutliveHook || self.seen.hooks.contains_key(&hook.id) {
            return wrong("has not ended, or not so");
        }
        if !is_cleared && !self.seen.unhooks.contains(&hook.id) {
            return wrong("is cleared up by nobody");
        }
        let mut counts = (0, 0);
        for (id, it) in self.seen.of(hook.id) {
            let Phase::Dead { why, .. } = it.delivery.phase else {
                if *is_cleared {
                    return wrong(&format!("has left {id:?}"));
                }
                continue;
            };
            counts.0 += 1;
            counts.1 += u64::from(!it.retried);
            if why == DeadReason::HookDeleted && *open == OpenDeliveries::Drop {
                return wrong(&format!("has buried {id:?}"));
            }
        }
        if !is_cleared {
            return Ok(());
        }
        let kept = self.seen.counts.get(&hook.id).copied().unwrap_or_default();
        let open = kept.pending + kept.failed;
        if counts.0 == 0 || (kept.kept, kept.dead_letters, open) != (counts.0, counts.1, 0) {
            return wrong(&format!("counts {kept:?}, not {counts:?}"));
        }
        let formers = self.seen.formers.range((hook.id, 0)..=(hook.id, u64::MAX)).count();
        let lanes = self.seen.lanes.range((hook.id, 0)..=(hook.id, u64::MAX)).count();
        let is_held = self.seen.held.iter().any(|id| id.hook == hook.id);
        let waits = self.seen.waiting.iter().any(|(id, ..)| *id == hook.id);
        if formers + lanes > 0 || is_held || waits {
            return wrong("has left something");
        }
        Ok(())
    }

    /// Somebody goes on with a replay until all had their turn, and what it has made is counted.
    fn audit_replays(&self) -> CheckResult {
        for (id, replay) in &self.seen.replays {
            if !replay.all_made && !self.seen.replaying.contains(id) {
                return Err(violation(format!("nobody goes on with {replay:?}")));
            }
            let made = self.seen.deliveries.values().filter(|it| it.replay == Some(*id));
            let (mut open, mut ended) = (0, 0);
            for it in made {
                let is_open = it.delivery.ended_at().is_none();
                *(if is_open { &mut open } else { &mut ended }) += 1;
            }
            let counted = replay.succeeded + replay.failed + replay.dropped;
            // Those of hooks that have ended are gone.
            if replay.made < open + ended || counted < ended || counted + open > replay.made {
                return Err(violation(format!("{open} and {ended} are of {replay:?}")));
            }
        }
        Ok(())
    }

    /// Dead letters and held ones are exactly those that their records say.
    fn audit_marks(&self) -> CheckResult {
        for (id, it) in &self.seen.deliveries {
            let is_dead = matches!(it.delivery.phase, Phase::Dead { .. }) && !it.retried;
            let is_held = it.delivery.phase == Phase::Held;
            let marks = (self.seen.dead_letters.contains(id), self.seen.held.contains(id));
            let ended = self.seen.ended.get(&id.hook).map(|ended| &ended.hook);
            let Some(hook) = self.seen.hooks.get(&id.hook).or(ended) else { continue };
            let marks = (marks.0, marks.1 && ended.is_none());
            if marks != (is_dead, is_held && ended.is_none()) {
                return Err(violation(format!("{id:?} is marked {marks:?}: {it:?}")));
            }
            let state = u8::from(it.retried) + u8::from(it.discarded);
            let listed = match it.delivery.phase {
                Phase::Dead { at, .. } => Some((hook.tenant.clone(), at, state)),
                _ => None,
            };
            if self.seen.letters.get(id) != listed.as_ref() {
                return Err(violation(format!("{id:?} is not listed as {listed:?}")));
            }
        }
        let kept = |id: &&DeliveryId| !self.seen.deliveries.contains_key(id);
        match self.seen.letters.keys().chain(&self.seen.dead_letters).find(kept) {
            Some(id) if !self.seen.unhooks.contains(&id.hook) => {
                Err(violation(format!("{id:?} is listed, and is not kept")))
            }
            _ => Ok(()),
        }
    }
}

/// Whether that is why there is no delivery.
fn says_no(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Age(Age::EventFirst)
            | Reason::Match(EventMatch::Differs(_) | EventMatch::Unknown(_))
            | Reason::Absent(Absence::Inactive | Absence::Forgotten)
    )
}

/// Whether the latest attempts failed quickly and in the same way.
fn is_poisoned(style: Style, attempts: &[AttemptRecord]) -> bool {
    let count = POISON.attempts as usize;
    if !style.has_poison() || attempts.len() < count {
        return false;
    }
    let latest = &attempts[attempts.len() - count..];
    let is_quick = |it: &AttemptRecord| {
        let asks = it.status == Some(429) || it.status == Some(503) && it.retry_after_s.is_some();
        let was_sent = it.kind != Some(ErrorKind::Secret);
        it.error.is_some() && it.took_ms <= POISON.within_ms && !asks && was_sent
    };
    let first = (latest[0].status, latest[0].kind);
    latest.iter().all(|it| is_quick(it) && (it.status, it.kind) == first)
}
