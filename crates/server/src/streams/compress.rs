//! Compression of catch-up reads, for clients that ask for it.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderMap;
use http::header;
use reveille_core::media::Framing;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies that are compressed at once: each takes some 300 KiB for as long as its client takes.
pub(crate) const COMPRESSORS_MAX: usize = 64;
/// Shorter bodies gain nothing.
const COMPRESSED_BYTES_MIN: u64 = 1_024;

/// Whether this body goes out compressed.
pub(super) fn is_wanted(headers: &HeaderMap, framing: Framing, len: u64) -> bool {
    let is_compressible = match framing {
        Framing::Json | Framing::Text => true,
        Framing::Binary => false,
    };
    is_compressible && len >= COMPRESSED_BYTES_MIN && accepts_gzip(headers)
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    codings.any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let is_refused = parts.any(|part| {
            let quality = part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok());
            quality.is_some_and(|quality| quality <= 0.0)
        });
        (name.eq_ignore_ascii_case("gzip") || name == "*") && !is_refused
    })
}

/// A body that is compressed chunk by chunk.
pub(super) struct Gzip {
    encoder: Option<GzEncoder<Vec<u8>>>,
    _permit: OwnedSemaphorePermit,
}

impl Gzip {
    /// Compresses, unless as many bodies are being compressed as may be: this one goes out as it
    /// is then.
    pub(super) fn new(compressors: &Arc<Semaphore>) -> Option<Gzip> {
        let permit = compressors.clone().try_acquire_owned().ok()?;
        let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
        Some(Gzip { encoder, _permit: permit })
    }

    /// Takes a chunk; returns what is ready.
    pub(super) fn push(&mut self, chunk: &[u8]) -> Bytes {
        let Some(encoder) = &mut self.encoder else {
            return Bytes::new();
        };
        encoder.write_all(chunk).expect("writing to memory cannot fail");
        std::mem::take(encoder.get_mut()).into()
    }

    /// Returns the rest.
    pub(super) fn finish(&mut self) -> Bytes {
        let Some(encoder) = self.encoder.take() else {
            return Bytes::new();
        };
        encoder.finish().expect("writing to memory cannot fail").into()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn only_long_text_for_those_who_accept() {
        let check = |accept: &str, framing, len| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
            is_wanted(&headers, framing, len)
        };
        assert!(check("br, gzip;q=0.5", Framing::Json, 2_000));
        assert!(check("*", Framing::Text, 2_000));
        assert!(!check("gzip;q=0", Framing::Json, 2_000));
        assert!(!check("identity", Framing::Json, 2_000));
        assert!(!check("gzip", Framing::Binary, 2_000));
        assert!(!check("gzip", Framing::Json, 1_000));
    }

    #[test]
    fn chunks_make_one_whole() {
        let mut gzip = Gzip::new(&Arc::new(Semaphore::new(1))).unwrap();
        let mut out = Vec::new();
        for _ in 0..100 {
            out.extend_from_slice(&gzip.push(&[b'x'; 5_000]));
        }
        out.extend_from_slice(&gzip.finish());
        let mut text = String::new();
        flate2::read::GzDecoder::new(out.as_slice()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "x".repeat(500_000));
    }
}
