//! What must happen to documents and indexes later, whatever crashes before.

use bytes::{BufMut, Bytes};
use reveille_core::Tenant;
use reveille_core::document::change::FACE;
use reveille_core::document::path::DocumentPath;

use super::IndexNo;
use crate::parts;

const BUILD_INDEX: u8 = 0x01;
const REMOVE_INDEX: u8 = 0x02;
const PURGE_TOMBSTONE: u8 = 0x03;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentTimer {
    /// An index is to have entries of documents from before its time: the next of them.
    BuildIndex(Tenant, IndexNo),
    /// An index is no more: its next entries are to be removed.
    RemoveIndex(Tenant, IndexNo),
    /// A document was deleted so long ago that nothing of it is to be left.
    PurgeTombstone(Tenant, DocumentPath),
}

impl DocumentTimer {
    pub const DOMAIN: u8 = FACE.0;

    pub fn encode(&self) -> Bytes {
        let of_index = |kind, tenant: &Tenant, no: &IndexNo| {
            let mut out = parts::timer(Self::DOMAIN, kind);
            parts::put_numbered(&mut out, tenant, no.0.into());
            out.freeze()
        };
        match self {
            DocumentTimer::BuildIndex(tenant, no) => of_index(BUILD_INDEX, tenant, no),
            DocumentTimer::RemoveIndex(tenant, no) => of_index(REMOVE_INDEX, tenant, no),
            DocumentTimer::PurgeTombstone(tenant, path) => {
                let mut out = parts::timer(Self::DOMAIN, PURGE_TOMBSTONE);
                out.put_slice(tenant.as_str().as_bytes());
                out.put_u8(0);
                out.put_slice(path.to_string().as_bytes());
                out.freeze()
            }
        }
    }

    /// `None` if the bytes are of another domain, of an unknown kind or damaged.
    pub fn decode(bytes: &[u8]) -> Option<DocumentTimer> {
        let (kind, subject) = parts::parse_timer(Self::DOMAIN, bytes)?;
        let index = || {
            let (tenant, no) = parts::parse_numbered(subject)?;
            Some((tenant, IndexNo(u32::try_from(no).ok()?)))
        };
        Some(match kind {
            BUILD_INDEX => {
                let (tenant, no) = index()?;
                DocumentTimer::BuildIndex(tenant, no)
            }
            REMOVE_INDEX => {
                let (tenant, no) = index()?;
                DocumentTimer::RemoveIndex(tenant, no)
            }
            PURGE_TOMBSTONE => {
                let (tenant, path) = std::str::from_utf8(subject).ok()?.split_once('\0')?;
                let path = DocumentPath::parse(path).ok()?;
                DocumentTimer::PurgeTombstone(Tenant::parse(tenant).ok()?, path)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<(DocumentTimer, &'static [u8])> {
        let tenant = Tenant::parse("acme").unwrap();
        let path = DocumentPath::parse("rooms/r1").unwrap();
        vec![
            (
                DocumentTimer::BuildIndex(tenant.clone(), IndexNo(7)),
                b"\x05\x01\0\0\0\0\0\0\0\x07acme",
            ),
            (
                DocumentTimer::RemoveIndex(tenant.clone(), IndexNo(8)),
                b"\x05\x02\0\0\0\0\0\0\0\x08acme",
            ),
            (DocumentTimer::PurgeTombstone(tenant, path), b"\x05\x03acme\0rooms/r1"),
        ]
    }

    #[test]
    fn timers_read_back() {
        for (timer, bytes) in all() {
            assert_eq!(timer.encode(), bytes, "{timer:?}");
            assert_eq!(DocumentTimer::decode(bytes), Some(timer));
        }
    }

    #[test]
    fn damaged_timers_are_nothing() {
        for (timer, bytes) in all() {
            let longer = [bytes, &[0]].concat();
            assert_eq!(DocumentTimer::decode(&longer), None, "{timer:?} with more");
            assert_eq!(DocumentTimer::decode(&bytes[..bytes.len() - 4]), None, "{timer:?} cut");
        }
        for bytes in [
            &b"\x05\x04\0\0\0\0\0\0\0\x08acme"[..],
            b"\x04\x01\0\0\0\0\0\0\0\x08acme",
            b"\x05\x01\0\0\0\x01\0\0\0\x08acme",
            b"\x05\x03acme\0rooms",
        ] {
            assert_eq!(DocumentTimer::decode(bytes), None, "{bytes:?}");
        }
    }
}
