//! The parts that keys and timers are made of.
//!
//! Integers are big-endian, so that byte order is the order of the numbers.

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::key_range::after_prefix;
use reveille_core::{StreamPath, Tenant};

pub(crate) const META: u8 = 0x01;

/// What the subjects of most timers fit into.
const TIMER_BYTES: usize = 64;

/// A tag and a number.
pub(crate) fn numbered(tag: u8, number: u64) -> Bytes {
    let mut key = BytesMut::with_capacity(9);
    key.put_u8(tag);
    key.put_u64(number);
    key.freeze()
}

/// All keys that begin with a tag and a number: from the first, to before the second.
pub(crate) fn numbered_range(tag: u8, number: u64) -> (Bytes, Bytes) {
    (numbered(tag, number), numbered(tag, number + 1))
}

/// Tag, tenant, `00`, rest.
pub(crate) fn of_tenant(tag: u8, tenant: &Tenant, rest: &[u8]) -> Bytes {
    let mut key = BytesMut::with_capacity(2 + tenant.as_str().len() + rest.len());
    key.put_u8(tag);
    key.put_slice(tenant.as_str().as_bytes());
    key.put_u8(0);
    key.put_slice(rest);
    key.freeze()
}

/// All keys of a tag and a tenant: from the first, to before the second.
pub(crate) fn tenant_range(tag: u8, tenant: &Tenant) -> (Bytes, Bytes) {
    let first = of_tenant(tag, tenant, &[]);
    let end = after_prefix(&first);
    (first, end)
}

/// All keys of a tag: from the first, to before the second.
pub(crate) fn tag_range<const TAG: u8>() -> (Bytes, Bytes) {
    (Bytes::from_static(const { &[TAG] }), Bytes::from_static(const { &[TAG + 1] }))
}

/// A name under the tag `01`, whose values are single ones that several domains have.
pub(crate) fn named(name: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(1 + name.len());
    key.put_u8(META);
    key.put_slice(name.as_bytes());
    key.freeze()
}

/// A timer without its subject.
pub(crate) fn timer(domain: u8, kind: u8) -> BytesMut {
    let mut out = BytesMut::with_capacity(TIMER_BYTES);
    out.put_u8(domain);
    out.put_u8(kind);
    out
}

/// The kind and subject of a timer of this domain.
pub(crate) fn parse_timer(domain: u8, bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (kind, subject) = bytes.strip_prefix(&[domain])?.split_first()?;
    Some((*kind, subject))
}

/// Tenant, `00`, path.
pub(crate) fn put_stream(out: &mut BytesMut, tenant: &Tenant, path: &StreamPath) {
    out.put_slice(tenant.as_str().as_bytes());
    out.put_u8(0);
    out.put_slice(path.as_str().as_bytes());
}

pub(crate) fn parse_stream(bytes: &[u8]) -> Option<(Tenant, StreamPath)> {
    let (tenant, path) = std::str::from_utf8(bytes).ok()?.split_once('\0')?;
    Some((Tenant::parse(tenant).ok()?, StreamPath::parse(path).ok()?))
}

/// A number, then a tenant.
pub(crate) fn put_numbered(out: &mut BytesMut, tenant: &Tenant, number: u64) {
    out.put_u64(number);
    out.put_slice(tenant.as_str().as_bytes());
}

pub(crate) fn parse_numbered(bytes: &[u8]) -> Option<(Tenant, u64)> {
    let (number, tenant) = split_u64(bytes)?;
    Some((Tenant::parse(std::str::from_utf8(tenant).ok()?).ok()?, number))
}

/// The number that the bytes begin with, and the rest.
pub(crate) fn split_u64(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*number), rest))
}

/// Bytes that are one number and nothing else.
pub(crate) fn parse_u64(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}
