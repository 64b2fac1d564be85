//! The events of a subscription once more: a replay is a delivery, through the same gate in the same
//! look, for as long as the server's window is.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::delivery::hook::Hook;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::fact::FACE;
use reveille_core::fact::access::{CancelReason, Ruling};
use reveille_core::fact::envelope;
use reveille_core::fact::subscription::{event_id, is_replayable, parse_event_id};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::{ID_STRIDE, ReadError};
use reveille_schema::facts::SubscriptionSpec;
use reveille_schema::keys;
use reveille_schema::record;
use reveille_store::state::Reader;

use super::error::{FactError, FactRejection};
use super::face::spec_of;
use super::limits::{FACT_PAGE_BYTES_MAX, REPLAY_LOOKS_MAX, REPLAY_PAGE_MAX};
use super::show::SubscriptionView;
use super::{content, gate};
use crate::deliveries::source;
use crate::records::{ReadRecord, Scan, damaged};

/// Numbers from one place to the next that a page may end at: those of fewer events than a page looks
/// at.
const PLACE_NUMBERS: u64 = 1 << 18;

const _: () = assert!(PLACE_NUMBERS / ID_STRIDE < REPLAY_LOOKS_MAX as u64, "pages come further");

/// Events of a subscription that were recorded, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplayPage {
    /// In their envelopes, as they were delivered.
    pub events: Vec<Bytes>,
    /// After which event the next page begins: the last that was shown, so that nobody learns the
    /// name of one that they may not have; `None` if there was none.
    pub next_after: Option<String>,
    /// Whether there is more to be shown, or so much was looked at that it is not known.
    pub has_more: bool,
}

impl ReplayPage {
    /// What there is of a subscription that was cancelled: that it was, and nothing of any fact.
    pub(super) fn of_cancelled(
        view: &SubscriptionView,
        after: Option<&str>,
        now: Millis,
        window_s: u64,
    ) -> Result<ReplayPage, FactError> {
        let Some(cancelled) = view.cancelled else { return Ok(ReplayPage::default()) };
        let after = after.map(|after| parse_event_id(view.hook, after).ok_or_else(gone));
        let is_new = after.transpose()?.is_none_or(|after| after < cancelled.event);
        let event = envelope::cancelled(&view.id, (view.hook, cancelled.event));
        let is_shown = is_new && is_replayable(cancelled.at, now, window_s);
        Ok(ReplayPage {
            events: is_shown.then(|| event.into()).into_iter().collect(),
            next_after: Some(event_id(view.hook, cancelled.event)),
            has_more: false,
        })
    }
}

fn gone() -> FactError {
    FactRejection::EventNotFound.into()
}

/// What a replay has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Replay {
    Page(ReplayPage),
    /// The subscription's access was revoked: nothing of it is shown.
    Revoked(CancelReason),
}

/// A replay that is read, from one look.
pub(super) struct ReplayRun {
    pub(super) reader: Reader,
    pub(super) hook: Arc<Hook>,
    pub(super) after: Option<String>,
    pub(super) limit: usize,
    pub(super) window_s: u64,
    pub(super) now: Millis,
}

impl ReplayRun {
    pub(super) fn read(&self) -> Result<Replay, FactError> {
        let (hook, spec) = (&*self.hook, spec_of(&self.hook)?);
        // Whether there is anything to be shown or not.
        if let Ruling::Cancel(why) = self.ask(&spec, spec.spec.garden)? {
            return Ok(Replay::Revoked(why));
        }
        let from = match &self.after {
            Some(after) => EventNo(self.known(after)?.0 + 1),
            None => self.first_in_window()?,
        };
        let mut page = ReplayPage { next_after: self.after.clone(), ..ReplayPage::default() };
        let (mut looks, mut bytes, mut last, mut shown) = (0, 0, None, None);
        let (_, to) = keys::deliveries(hook.id);
        let limit = self.limit.clamp(1, REPLAY_PAGE_MAX);
        for pair in Scan::new(&self.reader, first_key(hook, from), to) {
            let id = keys::parse_delivery(&pair?.0);
            let no = id.ok_or_else(|| Damaged::new("the key of a delivery is damaged"))?.no.event;
            // Of one event there may be several, which were asked for again.
            if last == Some(no) {
                continue;
            }
            if looks >= REPLAY_LOOKS_MAX {
                page.has_more = true;
                // Where the next page begins is further on, and no event's name.
                let place = self.place_before(no);
                let place = shown.map_or(place, |shown| place.max(shown));
                page.next_after = Some(event_id(hook.id, place));
                break;
            }
            (looks, last) = (looks + 1, Some(no));
            let event = source::event(&self.reader, FACE, &hook.tenant, no)?;
            let Some(event) = event.filter(|it| is_replayable(it.at, self.now, self.window_s))
            else {
                continue;
            };
            match self.ask(&spec, gate::subject_of(&event)?.garden)? {
                Ruling::Deliver if page.events.len() >= limit || bytes >= FACT_PAGE_BYTES_MAX => {
                    page.has_more = true;
                    break;
                }
                Ruling::Deliver => {
                    let envelope = content::envelope(&self.reader, hook, &event)?;
                    bytes += envelope.as_ref().map_or(0, Bytes::len);
                    page.events.extend(envelope);
                    page.next_after = Some(event_id(hook.id, no));
                    shown = Some(no);
                }
                Ruling::Withhold(_) => {}
                Ruling::Cancel(why) => return Ok(Replay::Revoked(why)),
            }
        }
        Ok(Replay::Page(page))
    }

    fn ask(
        &self,
        spec: &SubscriptionSpec,
        garden: Option<reveille_core::fact::garden::GardenNo>,
    ) -> Result<Ruling, Damaged> {
        let mut look = &self.reader;
        match gate::ask(&mut look, &self.hook, spec, garden, self.now) {
            Ok(ruling) => Ok(ruling),
            Err(ReadError::Damaged(error)) => Err(error),
            Err(ReadError::NotLoaded(_)) => Err(Damaged::new("what is durable needs no loading")),
        }
    }

    /// The event of a cursor, which must be one of those that can be replayed, or a place between
    /// two of them.
    fn known(&self, after: &str) -> Result<EventNo, FactError> {
        let no = parse_event_id(self.hook.id, after).ok_or_else(gone)?;
        let mut look = &self.reader;
        let id = DeliveryId { hook: self.hook.id, no: DeliveryNo { event: no, round: 0 } };
        let delivery = look.read(&keys::delivery(id), record::decode_delivery)?;
        let is_known = match delivery {
            Some(delivery) => is_replayable(delivery.event_at, self.now, self.window_s),
            None => {
                let is_place = self.place_before(EventNo(no.0 + 1)) == no;
                is_place && no >= self.first_in_window()?
            }
        };
        if is_known { Ok(no) } else { Err(gone()) }
    }

    /// A place before an event that says little of where that is, and is no event's number: those of a
    /// partition all end alike. A page that looks at as much as it may comes past at least one.
    fn place_before(&self, event: EventNo) -> EventNo {
        let base = event.0 & !(PLACE_NUMBERS - 1);
        EventNo((base + self.hook.id.0 % ID_STRIDE).saturating_sub(1))
    }

    /// The first event of the window, or one a little before it: events came in the order of their
    /// numbers, so that it is found in a few dozen looks, however many there are.
    fn first_in_window(&self) -> Result<EventNo, Damaged> {
        let (_, to) = keys::deliveries(self.hook.id);
        let (mut before, mut end) = (self.hook.id.0, u64::MAX >> 8);
        while before + 1 < end {
            let middle = before + (end - before) / 2;
            let from = first_key(&self.hook, EventNo(middle));
            let found = self.reader.range(&from, &to, 1)?;
            let Some((key, value)) = found.into_iter().next() else {
                end = middle;
                continue;
            };
            let delivery = record::decode_delivery(&value).map_err(damaged)?;
            let id = keys::parse_delivery(&key);
            let no = id.ok_or_else(|| Damaged::new("the key of a delivery is damaged"))?.no.event;
            if is_replayable(delivery.event_at, self.now, self.window_s) {
                end = middle;
            } else {
                before = no.0.max(middle);
            }
        }
        Ok(EventNo(before))
    }
}

fn first_key(hook: &Hook, event: EventNo) -> Bytes {
    keys::delivery(DeliveryId { hook: hook.id, no: DeliveryNo { event, round: 0 } })
}
