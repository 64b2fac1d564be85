//! Hooks and the deliveries to them.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `0d` hook | face `u8`, tenant, `00`, name | [`Hook`](reveille_core::delivery::hook::Hook) |
//! | `0e` event | face `u8`, tenant, `00`, number `u64` | [`EventRecord`] |
//! | `10` delivery | hook `u64`, event `u64`, round `u16` | [`DeliveryRecord`] |
//! | `11` counts | hook `u64` | [`DeliveryCounts`](reveille_core::delivery::hook::DeliveryCounts) |
//! | `12` dead letter | hook `u64`, `ff…` minus time of death in ms `u64`, event `u64`, round `u16` | empty: newest first |
//! | `13` held | hook `u64`, event `u64`, round `u16` | empty: the delivery waits for its hook to be active |
//! | `14` lane | hook `u64`, lane `u64` | [`Lane`](reveille_core::delivery::lane::Lane) |
//! | `1b` dead letter of a tenant | tenant, `00`, `ff…` minus time of death in ms `u64`, hook `u64`, event `u64`, round `u16` | one byte: 0 it is one, 1 it was made again, 2 it was discarded; newest first |
//! | `1c` replay | tenant, `00`, number `u64` | [`ReplayRecord`](reveille_core::delivery::replay::ReplayRecord) |
//! | `15` waiting | hook `u64`, lane `u64`, event `u64`, round `u16` | empty: the delivery waits for its turn in the lane |
//! | `16` fan-out | face `u8`, tenant, `00`, event `u64` | number of the last hook that has its delivery, `u64` |
//! | `1d` hook version | hook `u64`, version `u64` | the hook as it was then: [`Hook`](reveille_core::delivery::hook::Hook) |
//! | `27` note of a hook | hook `u64`, kind `u8`, rest | what its face keeps of it beside the hook; it goes with the hook |
//! | `1e` ended hook | tenant, `00`, hook `u64` | a hook that its dead letters have outlived: [`EndedHook`](reveille_core::delivery::hook::EndedHook) |
//!
//! | timer of domain `03` | subject |
//! |---|---|
//! | `01` delivery | hook `u64`, event `u64`, round `u16` |
//! | `02` delivery group | hook `u64`, event `u64`, round `u16` of one of them |
//! | `03` resume | hook `u64`, tenant |
//! | `04` unhook | hook `u64`, tenant |
//! | `05` replay | number `u64`, tenant: the next of its dead letters are to be made again |
//! | `06` fan-out | face `u8`, event `u64`, tenant: the next hooks are to get the event |
//!
//! The value of the timer `02` says which deliveries are in the group: `Vec<DeliveryId>` is that
//! record. It stays when the deliveries end, and goes when its time has come.

mod counts;
mod delivery;
mod ended;
mod event;
mod group;
mod hook;
mod lane;
mod replay;
#[cfg(test)]
mod tests;
mod timer;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::delivery::hook::{FaceId, HookId};
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};
use reveille_core::key_range::after_prefix;
use reveille_core::{Millis, Tenant};

use crate::parts;

pub use delivery::DeliveryRecord;
pub use event::{EventPlace, EventRecord};
pub use group::encode_group;
pub use timer::DeliveryTimer;

const HOOK: u8 = 0x0d;
const EVENT: u8 = 0x0e;
const DELIVERY: u8 = 0x10;
const COUNTS: u8 = 0x11;
const DEAD_LETTER: u8 = 0x12;
const HELD: u8 = 0x13;
const LANE: u8 = 0x14;
const WAITING: u8 = 0x15;
const FAN_OUT: u8 = 0x16;
const TENANT_DEAD_LETTER: u8 = 0x1b;
const REPLAY: u8 = 0x1c;
const HOOK_VERSION: u8 = 0x1d;
const ENDED_HOOK: u8 = 0x1e;
const HOOK_NOTE: u8 = 0x27;

#[cfg(test)]
pub(crate) const TAGS: &[u8] = &[
    HOOK,
    EVENT,
    DELIVERY,
    COUNTS,
    DEAD_LETTER,
    HELD,
    LANE,
    WAITING,
    FAN_OUT,
    TENANT_DEAD_LETTER,
    REPLAY,
    HOOK_VERSION,
    ENDED_HOOK,
    HOOK_NOTE,
];

/// Names of two faces, or of two tenants, never meet.
pub fn hook_key(face: FaceId, tenant: &Tenant, name: &str) -> Bytes {
    of_face(HOOK, face, tenant, name.as_bytes())
}

/// The keys of a tenant's hooks of a face: from the first, to before the second.
pub fn hook_keys(face: FaceId, tenant: &Tenant) -> (Bytes, Bytes) {
    let first = hook_key(face, tenant, "");
    let end = after_prefix(&first);
    (first, end)
}

pub fn event_key(face: FaceId, tenant: &Tenant, no: EventNo) -> Bytes {
    of_face(EVENT, face, tenant, &no.0.to_be_bytes())
}

/// The keys of a tenant's events of a face from one on: from the first, to before the second.
pub fn event_keys(face: FaceId, tenant: &Tenant, from: EventNo) -> (Bytes, Bytes) {
    (event_key(face, tenant, from), after_prefix(&of_face(EVENT, face, tenant, &[])))
}

/// The keys of the events of all faces and tenants: from the first, to before the second.
pub fn all_event_keys() -> (Bytes, Bytes) {
    parts::tag_range::<EVENT>()
}

/// The number in the key of an event or of a fan-out.
pub fn parse_event_no(key: &[u8]) -> Option<EventNo> {
    Some(EventNo(u64::from_be_bytes(*key.last_chunk::<8>()?)))
}

/// Whose an event is.
pub fn parse_event_source(key: &[u8]) -> Option<(FaceId, Tenant)> {
    let (face, rest) = key.strip_prefix(&[EVENT])?.split_first()?;
    let tenant = rest.split(|byte| *byte == 0).next()?;
    Some((FaceId(*face), Tenant::parse(std::str::from_utf8(tenant).ok()?).ok()?))
}

pub fn fan_out_key(face: FaceId, tenant: &Tenant, event: EventNo) -> Bytes {
    of_face(FAN_OUT, face, tenant, &event.0.to_be_bytes())
}

/// The keys of a tenant's fan-outs of a face, oldest event first: from the first, to before the
/// second.
pub fn fan_out_keys(face: FaceId, tenant: &Tenant) -> (Bytes, Bytes) {
    let first = of_face(FAN_OUT, face, tenant, &[]);
    let end = after_prefix(&first);
    (first, end)
}

/// A hook as it was before its owner changed it.
pub fn hook_version_key(hook: HookId, version: u64) -> Bytes {
    of_lane(HOOK_VERSION, hook, version).freeze()
}

/// The keys of all former versions of a hook: from the first, to before the second.
pub fn hook_version_keys(hook: HookId) -> (Bytes, Bytes) {
    parts::numbered_range(HOOK_VERSION, hook.0)
}

/// What the face of a hook keeps of it under a number of its own, and perhaps more of.
pub fn hook_note_key(hook: HookId, kind: u8, rest: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(10 + rest.len());
    key.put_u8(HOOK_NOTE);
    key.put_u64(hook.0);
    key.put_u8(kind);
    key.put_slice(rest);
    key.freeze()
}

/// The keys of all notes of a hook: from the first, to before the second.
pub fn hook_note_keys(hook: HookId) -> (Bytes, Bytes) {
    parts::numbered_range(HOOK_NOTE, hook.0)
}

/// The keys of all hooks of all tenants: from the first, to before the second.
pub fn all_hook_keys() -> (Bytes, Bytes) {
    parts::tag_range::<HOOK>()
}

/// A hook that has ended, and that its dead letters have outlived.
pub fn ended_hook_key(tenant: &Tenant, hook: HookId) -> Bytes {
    parts::of_tenant(ENDED_HOOK, tenant, &hook.0.to_be_bytes())
}

/// The keys of a tenant's ended hooks: from the first, to before the second.
pub fn ended_hook_keys(tenant: &Tenant) -> (Bytes, Bytes) {
    parts::tenant_range(ENDED_HOOK, tenant)
}

/// The keys of all ended hooks of all tenants: from the first, to before the second.
pub fn all_ended_hook_keys() -> (Bytes, Bytes) {
    parts::tag_range::<ENDED_HOOK>()
}

pub fn delivery_key(id: DeliveryId) -> Bytes {
    of_delivery(DELIVERY, id)
}

/// The keys of a hook's deliveries: from the first, to before the second.
pub fn delivery_keys(hook: HookId) -> (Bytes, Bytes) {
    parts::numbered_range(DELIVERY, hook.0)
}

pub fn parse_delivery_key(key: &[u8]) -> Option<DeliveryId> {
    parse_id(key.strip_prefix(&[DELIVERY])?)
}

pub fn counts_key(hook: HookId) -> Bytes {
    parts::numbered(COUNTS, hook.0)
}

/// The keys of all counts: from the first, to before the second.
pub fn all_counts_keys() -> (Bytes, Bytes) {
    parts::tag_range::<COUNTS>()
}

pub fn parse_counts_key(key: &[u8]) -> Option<HookId> {
    let (hook, rest) = parts::split_u64(key.strip_prefix(&[COUNTS])?)?;
    rest.is_empty().then_some(HookId(hook))
}

pub fn dead_letter_key(id: DeliveryId, died_at: Millis) -> Bytes {
    let mut key = BytesMut::with_capacity(27);
    key.put_u8(DEAD_LETTER);
    key.put_u64(id.hook.0);
    key.put_u64(u64::MAX - died_at.0);
    put_no(&mut key, id.no);
    key.freeze()
}

/// The keys of a hook's dead letters, newest first: from the first, to before the second.
pub fn dead_letter_keys(hook: HookId) -> (Bytes, Bytes) {
    parts::numbered_range(DEAD_LETTER, hook.0)
}

pub fn parse_dead_letter_key(key: &[u8]) -> Option<DeliveryId> {
    let (hook, rest) = parts::split_u64(key.strip_prefix(&[DEAD_LETTER])?)?;
    let (_, no) = parts::split_u64(rest)?;
    Some(DeliveryId { hook: HookId(hook), no: parse_no(no)? })
}

/// A dead letter's place among those of its tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantDeadLetter {
    pub tenant: Tenant,
    pub died_at: Millis,
    pub id: DeliveryId,
}

impl TenantDeadLetter {
    pub fn key(&self) -> Bytes {
        let mut rest = BytesMut::with_capacity(26);
        rest.put_u64(u64::MAX - self.died_at.0);
        put_id(&mut rest, self.id);
        parts::of_tenant(TENANT_DEAD_LETTER, &self.tenant, &rest)
    }

    pub fn parse(key: &[u8]) -> Option<TenantDeadLetter> {
        let rest = key.strip_prefix(&[TENANT_DEAD_LETTER])?;
        let (name, place) = rest.split_at_checked(rest.len().checked_sub(26)?)?;
        let tenant = std::str::from_utf8(name.strip_suffix(&[0])?).ok()?;
        let (age, id) = parts::split_u64(place)?;
        Some(TenantDeadLetter {
            tenant: Tenant::parse(tenant).ok()?,
            died_at: Millis(u64::MAX - age),
            id: parse_id(id)?,
        })
    }
}

/// The keys of a tenant's dead letters that died from one time on and before another, newest first.
pub fn tenant_dead_letter_keys(tenant: &Tenant, from: Millis, to: Millis) -> (Bytes, Bytes) {
    let died_before = |at: Millis| match at.0 {
        0 => parts::tenant_range(TENANT_DEAD_LETTER, tenant).1,
        at => {
            let first = (u64::MAX - at + 1).to_be_bytes();
            parts::of_tenant(TENANT_DEAD_LETTER, tenant, &first)
        }
    };
    (died_before(to), died_before(from))
}

pub fn replay_key(tenant: &Tenant, id: u64) -> Bytes {
    parts::of_tenant(REPLAY, tenant, &id.to_be_bytes())
}

/// The keys of a tenant's replays: from the first, to before the second.
pub fn replay_keys(tenant: &Tenant) -> (Bytes, Bytes) {
    parts::tenant_range(REPLAY, tenant)
}

/// The keys of all replays of all tenants.
pub fn all_replay_keys() -> (Bytes, Bytes) {
    parts::tag_range::<REPLAY>()
}

pub fn held_key(id: DeliveryId) -> Bytes {
    of_delivery(HELD, id)
}

/// The keys of all that waits for a hook to be active: from the first, to before the second.
pub fn held_keys(hook: HookId) -> (Bytes, Bytes) {
    parts::numbered_range(HELD, hook.0)
}

pub fn parse_held_key(key: &[u8]) -> Option<DeliveryId> {
    parse_id(key.strip_prefix(&[HELD])?)
}

pub fn lane_key(hook: HookId, lane: u64) -> Bytes {
    of_lane(LANE, hook, lane).freeze()
}

/// The keys of a hook's lanes: from the first, to before the second.
pub fn lane_keys(hook: HookId) -> (Bytes, Bytes) {
    parts::numbered_range(LANE, hook.0)
}

pub fn waiting_key(hook: HookId, lane: u64, no: DeliveryNo) -> Bytes {
    let mut key = of_lane(WAITING, hook, lane);
    put_no(&mut key, no);
    key.freeze()
}

/// The keys of whoever waits in a lane: from the first, to before the second.
pub fn waiting_keys(hook: HookId, lane: u64) -> (Bytes, Bytes) {
    let first = of_lane(WAITING, hook, lane).freeze();
    let end = after_prefix(&first);
    (first, end)
}

/// The keys of whoever waits in any lane of a hook: from the first, to before the second.
pub fn all_waiting_keys(hook: HookId) -> (Bytes, Bytes) {
    parts::numbered_range(WAITING, hook.0)
}

pub fn parse_waiting_key(key: &[u8]) -> Option<DeliveryNo> {
    parse_no(key.get(17..)?)
}

/// Tag, face, tenant, `00`, rest.
fn of_face(tag: u8, face: FaceId, tenant: &Tenant, rest: &[u8]) -> Bytes {
    let tenant = tenant.as_str();
    let mut key = BytesMut::with_capacity(3 + tenant.len() + rest.len());
    key.put_u8(tag);
    key.put_u8(face.0);
    key.put_slice(tenant.as_bytes());
    key.put_u8(0);
    key.put_slice(rest);
    key.freeze()
}

fn of_delivery(tag: u8, id: DeliveryId) -> Bytes {
    let mut key = BytesMut::with_capacity(19);
    key.put_u8(tag);
    put_id(&mut key, id);
    key.freeze()
}

fn of_lane(tag: u8, hook: HookId, lane: u64) -> BytesMut {
    let mut key = BytesMut::with_capacity(27);
    key.put_u8(tag);
    key.put_u64(hook.0);
    key.put_u64(lane);
    key
}

/// Hook `u64`, event `u64`, round `u16`.
pub(crate) fn put_id(out: &mut BytesMut, id: DeliveryId) {
    out.put_u64(id.hook.0);
    put_no(out, id.no);
}

pub(crate) fn parse_id(bytes: &[u8]) -> Option<DeliveryId> {
    let (hook, no) = parts::split_u64(bytes)?;
    Some(DeliveryId { hook: HookId(hook), no: parse_no(no)? })
}

fn put_no(out: &mut BytesMut, no: DeliveryNo) {
    out.put_u64(no.event.0);
    out.put_u16(no.round);
}

fn parse_no(bytes: &[u8]) -> Option<DeliveryNo> {
    let (event, round) = parts::split_u64(bytes)?;
    let round = u16::from_be_bytes(round.try_into().ok()?);
    Some(DeliveryNo { event: EventNo(event), round })
}
