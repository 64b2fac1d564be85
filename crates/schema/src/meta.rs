//! Single values that belong to no domain.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `01` meta | `next_stream_id` | a number that no stream, subscription, hook or event has had, `u64` |
//! | `01` meta | `probe` | when somebody last asked whether writing works, ms, `u64` |

use bytes::Bytes;

use crate::parts;

pub fn next_stream_id_key() -> Bytes {
    parts::named("next_stream_id")
}

pub fn probe_key() -> Bytes {
    parts::named("probe")
}
