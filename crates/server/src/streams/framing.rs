//! From stored bytes to what readers get: JSON messages become an array again.

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::media::Framing;

/// Stored bytes of whole messages as the body of an answer.
pub(super) fn unframe(framing: Framing, stored: Bytes) -> Bytes {
    match framing {
        Framing::Text | Framing::Binary => stored,
        Framing::Json => {
            let messages = stored.strip_suffix(b",").unwrap_or(&stored);
            let mut array = BytesMut::with_capacity(messages.len() + 2);
            array.put_u8(b'[');
            array.put_slice(messages);
            array.put_u8(b']');
            array.freeze()
        }
    }
}

/// The length of the body that stored bytes become.
pub(super) fn unframed_len(framing: Framing, stored: u64) -> u64 {
    match framing {
        Framing::Text | Framing::Binary => stored,
        // The last comma goes, two brackets come.
        Framing::Json => stored.saturating_sub(1) + 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_an_array_and_the_length_is_known_before() {
        for stored in ["", "1,", "{\"a\":1},2,"] {
            let body = unframe(Framing::Json, Bytes::copy_from_slice(stored.as_bytes()));
            let len = u64::try_from(stored.len()).unwrap();
            assert_eq!(u64::try_from(body.len()).unwrap(), unframed_len(Framing::Json, len));
            assert!(serde_json::from_slice::<Vec<serde_json::Value>>(&body).is_ok());
        }
        assert_eq!(unframe(Framing::Text, Bytes::from_static(b"a,")), "a,");
    }
}
