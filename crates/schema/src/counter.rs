//! Counters: 8 bytes, big-endian.

use bytes::Bytes;

use crate::codec::{Record, RecordError};

impl Record for u64 {
    fn encode(&self) -> Bytes {
        Bytes::copy_from_slice(&self.to_be_bytes())
    }

    fn decode(value: &[u8]) -> Result<u64, RecordError> {
        let bytes = value.try_into().map_err(|_| {
            RecordError::new("counter", format_args!("{} bytes long instead of 8", value.len()))
        })?;
        Ok(u64::from_be_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_read_back_and_damage_is_an_error() {
        assert_eq!(u64::decode(&42.encode()), Ok(42));
        let damaged = u64::decode(b"short").unwrap_err().to_string();
        assert_eq!(damaged, "a stored counter cannot be read: 5 bytes long instead of 8");
    }
}
