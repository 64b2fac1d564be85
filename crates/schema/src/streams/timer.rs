//! What must happen to a stream later, whatever crashes before.

use bytes::{BufMut, Bytes};
use reveille_core::stream::StreamId;
use reveille_core::{StreamPath, Tenant};

use crate::parts;

const EXPIRE: u8 = 0x01;
const PURGE: u8 = 0x02;
const RELEASE: u8 = 0x03;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamTimer {
    /// The stream may have expired: look, and end it or come back later.
    Expire(Tenant, StreamPath),
    /// The bytes and producers of an ended incarnation are to be removed.
    Purge(StreamId),
    /// A fork of this source has ended: count it off, and end the source if it was kept for it.
    /// The fork's id tells the releases of one source apart.
    Release(Tenant, StreamPath, StreamId),
}

impl StreamTimer {
    pub const DOMAIN: u8 = 0x01;

    pub fn encode(&self) -> Bytes {
        let begin = |kind| parts::timer(Self::DOMAIN, kind);
        let out = match self {
            StreamTimer::Expire(tenant, path) => {
                let mut out = begin(EXPIRE);
                parts::put_stream(&mut out, tenant, path);
                out
            }
            StreamTimer::Purge(id) => {
                let mut out = begin(PURGE);
                out.put_u64(id.0);
                out
            }
            StreamTimer::Release(tenant, source, fork) => {
                let mut out = begin(RELEASE);
                parts::put_stream(&mut out, tenant, source);
                out.put_u8(0);
                out.put_u64(fork.0);
                out
            }
        };
        out.freeze()
    }

    /// `None` if the bytes are of another domain, of an unknown kind or damaged.
    pub fn decode(bytes: &[u8]) -> Option<StreamTimer> {
        let (kind, subject) = parts::parse_timer(Self::DOMAIN, bytes)?;
        Some(match kind {
            EXPIRE => {
                let (tenant, path) = parts::parse_stream(subject)?;
                StreamTimer::Expire(tenant, path)
            }
            PURGE => StreamTimer::Purge(StreamId(parts::parse_u64(subject)?)),
            RELEASE => {
                let (source, fork) = subject.split_last_chunk::<8>()?;
                let (tenant, source) = parts::parse_stream(source.strip_suffix(&[0])?)?;
                StreamTimer::Release(tenant, source, StreamId(u64::from_be_bytes(*fork)))
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<(StreamTimer, &'static [u8])> {
        let (tenant, path) = (Tenant::parse("acme").unwrap(), StreamPath::parse("/a/b").unwrap());
        vec![
            (StreamTimer::Expire(tenant.clone(), path.clone()), b"\x01\x01acme\0/a/b"),
            (StreamTimer::Purge(StreamId(9)), b"\x01\x02\0\0\0\0\0\0\0\x09"),
            (StreamTimer::Release(tenant, path, StreamId(3)), {
                b"\x01\x03acme\0/a/b\0\0\0\0\0\0\0\0\x03"
            }),
        ]
    }

    #[test]
    fn timers_read_back() {
        for (timer, bytes) in all() {
            assert_eq!(timer.encode(), bytes, "{timer:?}");
            assert_eq!(StreamTimer::decode(bytes), Some(timer));
        }
    }

    #[test]
    fn damaged_timers_are_nothing() {
        for bytes in [
            &b""[..],
            b"\x01",
            b"\x01\x00acme\0/a",
            b"\x01\x04acme\0/a",
            b"\x02\x01acme\0/a",
            b"\x01\x01",
            b"\x01\x01acme",
            b"\x01\x01\0/a",
            b"\x01\x01Acme\0/a",
            b"\x01\x01acme\0",
            b"\x01\x01acme\0/a\0",
            b"\x01\x01acme\0/\xff",
            b"\x01\x02\0\0\0\0\0\0\0",
            b"\x01\x02\0\0\0\0\0\0\0\x09\0",
            b"\x01\x03acme\0/a",
            b"\x01\x03\0\0\0\0\0\0\0\x03",
            b"\x01\x03acme\0/a\x01\0\0\0\0\0\0\0\x03",
        ] {
            assert_eq!(StreamTimer::decode(bytes), None, "{bytes:?}");
        }
    }
}
