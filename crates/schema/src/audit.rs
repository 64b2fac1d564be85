//! The audit log: a chain of rows for each tenant, and one for what belongs to no tenant.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `19` row | tenant or nothing, `00`, place `u64` | hash (32), then [`AuditRow`](reveille_core::audit::AuditRow): the bytes that the hash is over |
//! | `1a` head | tenant or nothing | [`ChainHead`](reveille_core::audit::ChainHead) |
//!
//! What belongs to no tenant is in the first partition. There are no timers: old rows are removed
//! from the beginning by whoever cleans up.

mod head;
mod row;
#[cfg(test)]
mod tests;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::Tenant;
use reveille_core::audit::ChainHash;

use crate::parts;

const ROW: u8 = 0x19;
const HEAD: u8 = 0x1a;

#[cfg(test)]
pub(crate) const TAGS: &[u8] = &[ROW, HEAD];

/// Whose chain: a tenant's, or that of what belongs to none.
pub type Chain = Option<Tenant>;

fn of_chain(tag: u8, chain: &Chain, rest: usize) -> BytesMut {
    let name = chain.as_ref().map_or("", Tenant::as_str);
    let mut key = BytesMut::with_capacity(2 + name.len() + rest);
    key.put_u8(tag);
    key.put_slice(name.as_bytes());
    key
}

pub fn row_key(chain: &Chain, seq: u64) -> Bytes {
    let mut key = of_chain(ROW, chain, 8);
    key.put_u8(0);
    key.put_u64(seq);
    key.freeze()
}

/// The keys of a chain's rows from one place to before another.
pub fn row_keys(chain: &Chain, from: u64, to: u64) -> (Bytes, Bytes) {
    (row_key(chain, from), row_key(chain, to))
}

/// All rows of all chains: from the first, to before the second.
pub fn all_row_keys() -> (Bytes, Bytes) {
    parts::tag_range::<ROW>()
}

/// The chain and the place of a row.
pub fn parse_row_key(key: &[u8]) -> Option<(Chain, u64)> {
    let rest = key.strip_prefix(&[ROW])?;
    let (name, seq) = rest.split_last_chunk::<8>()?;
    let chain = parse_chain(name.strip_suffix(&[0])?)?;
    Some((chain, u64::from_be_bytes(*seq)))
}

pub fn head_key(chain: &Chain) -> Bytes {
    of_chain(HEAD, chain, 0).freeze()
}

/// All heads: from the first, to before the second.
pub fn all_head_keys() -> (Bytes, Bytes) {
    parts::tag_range::<HEAD>()
}

pub fn parse_head_key(key: &[u8]) -> Option<Chain> {
    parse_chain(key.strip_prefix(&[HEAD])?)
}

fn parse_chain(name: &[u8]) -> Option<Chain> {
    if name.is_empty() {
        return Some(None);
    }
    Some(Some(Tenant::parse(std::str::from_utf8(name).ok()?).ok()?))
}

/// A row's value: its hash, and the bytes that it is over.
pub fn row_value(hash: ChainHash, row: &[u8]) -> Bytes {
    [&hash.0[..], row].concat().into()
}

/// The hash of a row, and the bytes that it is over.
pub fn split_row_value(value: &[u8]) -> Option<(ChainHash, &[u8])> {
    let (hash, row) = value.split_first_chunk::<32>()?;
    Some((ChainHash(*hash), row))
}
