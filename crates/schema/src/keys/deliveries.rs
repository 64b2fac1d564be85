//! Keys of hooks, events and deliveries.

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::event::Ulid;
use reveille_core::key_range::after_prefix;
use reveille_core::{Millis, Tenant};

use super::{
    DEAD_LETTER, DELIVERY, EVENT, EVENT_ID, FAN_OUT, HELD, HOOK, INGESTED, LANE, LATER, TALLY,
    WAITING, tagged,
};

/// The key of a hook.
pub fn hook(tenant: &Tenant, name: &str) -> Bytes {
    of_tenant(HOOK, tenant, name.as_bytes())
}

/// All hooks: from the first key, to before the second.
pub fn hooks() -> (Bytes, Bytes) {
    (Bytes::from_static(&[HOOK]), Bytes::from_static(&[HOOK + 1]))
}

/// All hooks of a tenant: from the first key, to before the second.
pub fn hooks_of(tenant: &Tenant) -> (Bytes, Bytes) {
    let first = of_tenant(HOOK, tenant, &[]);
    let end = after_prefix(&first);
    (first, end)
}

/// The key of an event.
pub fn event(tenant: &Tenant, no: EventNo) -> Bytes {
    of_tenant(EVENT, tenant, &no.0.to_be_bytes())
}

/// All events of a tenant from one on: from the first key, to before the second.
pub fn events(tenant: &Tenant, from: EventNo) -> (Bytes, Bytes) {
    (event(tenant, from), after_prefix(&of_tenant(EVENT, tenant, &[])))
}

/// The events of all tenants: from the first key, to before the second.
pub fn all_events() -> (Bytes, Bytes) {
    (Bytes::from_static(&[EVENT]), Bytes::from_static(&[EVENT + 1]))
}

/// The tenant of an event's key.
pub fn event_tenant(key: &[u8]) -> Option<Tenant> {
    let tenant = key.strip_prefix(&[EVENT])?.split(|byte| *byte == 0).next()?;
    Tenant::parse(std::str::from_utf8(tenant).ok()?).ok()
}

/// The number of an event's key.
pub fn parse_event(key: &[u8]) -> Option<EventNo> {
    Some(EventNo(u64::from_be_bytes(*key.last_chunk::<8>()?)))
}

/// The key of the number of the event that had an id last, which its sender gave it.
pub fn event_id(tenant: &Tenant, id: &str) -> Bytes {
    of_tenant(EVENT_ID, tenant, id.as_bytes())
}

/// The key of the number of the event that has the first of many ids that were given together, or
/// would. No sender's id begins like it.
pub fn event_ids(tenant: &Tenant, first: Ulid) -> Bytes {
    let mut id = [0; 17];
    let (_, number) = id.split_at_mut(1);
    number.copy_from_slice(&first.to_u128().to_be_bytes());
    of_tenant(EVENT_ID, tenant, &id)
}

/// The key of a delivery.
pub fn delivery(id: DeliveryId) -> Bytes {
    of_delivery(DELIVERY, id)
}

/// All deliveries of a hook: from the first key, to before the second.
pub fn deliveries(hook: HookId) -> (Bytes, Bytes) {
    (tagged(DELIVERY, hook.0), tagged(DELIVERY, hook.0 + 1))
}

/// Which delivery a key is of.
pub fn parse_delivery(key: &[u8]) -> Option<DeliveryId> {
    parse_id(key.strip_prefix(&[DELIVERY])?)
}

/// The key of a hook's tally.
pub fn counts(hook: HookId) -> Bytes {
    tagged(TALLY, hook.0)
}

/// The key of a dead letter.
pub fn dead_letter(id: DeliveryId, died_at: Millis) -> Bytes {
    let mut key = BytesMut::with_capacity(27);
    key.put_u8(DEAD_LETTER);
    key.put_u64(id.hook.0);
    key.put_u64(u64::MAX - died_at.0);
    put_no(&mut key, id.no);
    key.freeze()
}

/// All dead letters of a hook, newest first: from the first key, to before the second.
pub fn dead_letters(hook: HookId) -> (Bytes, Bytes) {
    (tagged(DEAD_LETTER, hook.0), tagged(DEAD_LETTER, hook.0 + 1))
}

/// Which delivery a dead letter's key is of.
pub fn parse_dead_letter(key: &[u8]) -> Option<DeliveryId> {
    let (hook, rest) = key.strip_prefix(&[DEAD_LETTER])?.split_first_chunk::<8>()?;
    let no = parse_no(rest.get(8..)?)?;
    Some(DeliveryId { hook: HookId(u64::from_be_bytes(*hook)), no })
}

/// The key that says that a delivery waits for its hook.
pub fn held(id: DeliveryId) -> Bytes {
    of_delivery(HELD, id)
}

/// Everything that waits for a hook: from the first key, to before the second.
pub fn all_held(hook: HookId) -> (Bytes, Bytes) {
    (tagged(HELD, hook.0), tagged(HELD, hook.0 + 1))
}

/// Which delivery a held one's key is of.
pub fn parse_held(key: &[u8]) -> Option<DeliveryId> {
    parse_id(key.strip_prefix(&[HELD])?)
}

/// The key of a lane.
pub fn lane(hook: HookId, lane: u64) -> Bytes {
    let mut key = BytesMut::from(tagged(LANE, hook.0).as_ref());
    key.put_u64(lane);
    key.freeze()
}

/// All lanes of a hook: from the first key, to before the second.
pub fn lanes(hook: HookId) -> (Bytes, Bytes) {
    (tagged(LANE, hook.0), tagged(LANE, hook.0 + 1))
}

/// The key that says that a delivery waits for its turn in a lane.
pub fn waiting(hook: HookId, lane: u64, no: DeliveryNo) -> Bytes {
    let mut key = BytesMut::from(tagged(WAITING, hook.0).as_ref());
    key.put_u64(lane);
    put_no(&mut key, no);
    key.freeze()
}

/// Whoever waits in a lane: from the first key, to before the second.
pub fn waiting_in(hook: HookId, lane: u64) -> (Bytes, Bytes) {
    let mut first = BytesMut::from(tagged(WAITING, hook.0).as_ref());
    first.put_u64(lane);
    let end = after_prefix(&first);
    (first.freeze(), end)
}

/// Whoever waits in any lane of a hook: from the first key, to before the second.
pub fn all_waiting(hook: HookId) -> (Bytes, Bytes) {
    (tagged(WAITING, hook.0), tagged(WAITING, hook.0 + 1))
}

/// Which delivery waits, by its key.
pub fn parse_waiting(key: &[u8]) -> Option<DeliveryNo> {
    parse_no(key.get(17..)?)
}

/// The key that says how far an event's fan-out has come.
pub fn fan_out(tenant: &Tenant, event: EventNo) -> Bytes {
    of_tenant(FAN_OUT, tenant, &event.0.to_be_bytes())
}

/// All fan-outs of a tenant, oldest event first: from the first key, to before the second.
pub fn fan_outs(tenant: &Tenant) -> (Bytes, Bytes) {
    let first = of_tenant(FAN_OUT, tenant, &[]);
    let end = after_prefix(&first);
    (first, end)
}

/// The key that says that a batch of events was taken.
pub fn ingested(tenant: &Tenant, batch: &str) -> Bytes {
    of_tenant(INGESTED, tenant, batch.as_bytes())
}

/// The key that says that another is of no use after a time.
pub fn later(at: Millis, key: &[u8]) -> Bytes {
    let mut later = BytesMut::from(tagged(LATER, at.0).as_ref());
    later.put_slice(key);
    later.freeze()
}

/// Everything that is of no use any more: from the first key, to before the second.
pub fn later_until(at: Millis) -> (Bytes, Bytes) {
    (tagged(LATER, 0), tagged(LATER, at.0.saturating_add(1)))
}

/// The key that is of no use.
pub fn parse_later(key: &Bytes) -> Option<Bytes> {
    (key.len() > 9).then(|| key.slice(9..))
}

fn of_tenant(tag: u8, tenant: &Tenant, rest: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(2 + tenant.as_str().len() + rest.len());
    key.put_u8(tag);
    key.put_slice(tenant.as_str().as_bytes());
    key.put_u8(0);
    key.put_slice(rest);
    key.freeze()
}

fn of_delivery(tag: u8, id: DeliveryId) -> Bytes {
    let mut key = BytesMut::with_capacity(19);
    put_delivery(&mut key, tag, id);
    key.freeze()
}

pub(super) fn put_delivery(key: &mut BytesMut, tag: u8, id: DeliveryId) {
    key.put_u8(tag);
    key.put_u64(id.hook.0);
    put_no(key, id.no);
}

pub(super) fn parse_id(bytes: &[u8]) -> Option<DeliveryId> {
    let (hook, no) = bytes.split_first_chunk::<8>()?;
    Some(DeliveryId { hook: HookId(u64::from_be_bytes(*hook)), no: parse_no(no)? })
}

fn put_no(key: &mut BytesMut, no: DeliveryNo) {
    key.put_u64(no.event.0);
    key.put_u16(no.round);
}

fn parse_no(bytes: &[u8]) -> Option<DeliveryNo> {
    let (event, round) = bytes.split_first_chunk::<8>()?;
    let round = u16::from_be_bytes(round.try_into().ok()?);
    Some(DeliveryNo { event: EventNo(u64::from_be_bytes(*event)), round })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_stand_in_order() {
        let no = |event, round| DeliveryNo { event: EventNo(event), round };
        let id = |event, round| DeliveryId { hook: HookId(3), no: no(event, round) };
        assert_eq!(parse_delivery(&delivery(id(5, 2))), Some(id(5, 2)));
        assert_eq!(parse_held(&held(id(5, 2))), Some(id(5, 2)));
        let old = dead_letter(id(5, 2), Millis(10));
        let new = dead_letter(id(4, 0), Millis(11));
        assert!(new < old, "the newest comes first");
        assert_eq!(parse_dead_letter(&old), Some(id(5, 2)));
        let (from, to) = waiting_in(HookId(3), 7);
        for next in [no(0, 0), no(5, 1), no(u64::MAX, u16::MAX)] {
            let key = waiting(HookId(3), 7, next);
            assert!(from <= key && key < to, "{next:?}");
            assert_eq!(parse_waiting(&key), Some(next));
        }
        assert!(waiting(HookId(3), 8, no(6, 0)) >= to, "another lane");
        let tenant = Tenant::default_tenant();
        let key = event(&tenant, EventNo(9));
        assert_eq!(parse_event(&key), Some(EventNo(9)));
        assert_eq!(event_tenant(&key), Some(tenant.clone()));
        let (from, to) = events(&tenant, EventNo(9));
        assert!(from <= key && key < to && event(&tenant, EventNo(8)) < from);
        let marker = ingested(&tenant, "b");
        assert_eq!(parse_later(&later(Millis(4), &marker)), Some(marker));
    }
}
