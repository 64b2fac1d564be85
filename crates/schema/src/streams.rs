//! Streams: what is known of each, and of its producers. Their bytes are the store's.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `02` stream | tenant, `00`, path | [`Head`](reveille_core::stream::Head) |
//! | `03` producer | stream id `u64`, producer id | [`ProducerState`](reveille_core::producer::ProducerState) |
//!
//! | timer of domain `01` | subject |
//! |---|---|
//! | `01` expire | tenant, `00`, path |
//! | `02` purge | stream id `u64` |
//! | `03` release | tenant, `00`, path of the source, `00`, stream id of the fork `u64` |

mod head;
mod producer;
#[cfg(test)]
mod tests;
mod timer;

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::stream::StreamId;
use reveille_core::{StreamPath, Tenant};

use crate::parts;

pub use timer::StreamTimer;

const STREAM: u8 = 0x02;
const PRODUCER: u8 = 0x03;

#[cfg(test)]
pub(crate) const TAGS: &[u8] = &[STREAM, PRODUCER];

pub fn stream_key(tenant: &Tenant, path: &StreamPath) -> Bytes {
    stream_prefix(tenant, path.as_str())
}

/// The beginning of the keys of all streams of a tenant whose path begins with `prefix`.
pub fn stream_prefix(tenant: &Tenant, prefix: &str) -> Bytes {
    parts::of_tenant(STREAM, tenant, prefix.as_bytes())
}

pub fn parse_stream_key(key: &[u8]) -> Option<(Tenant, StreamPath)> {
    parts::parse_stream(key.strip_prefix(&[STREAM])?)
}

pub fn producer_key(id: StreamId, producer: &str) -> Bytes {
    let mut key = BytesMut::with_capacity(9 + producer.len());
    key.put_u8(PRODUCER);
    key.put_u64(id.0);
    key.put_slice(producer.as_bytes());
    key.freeze()
}

/// All keys of a stream's producers: from the first, to before the second.
pub fn producer_keys(id: StreamId) -> (Bytes, Bytes) {
    parts::numbered_range(PRODUCER, id.0)
}
