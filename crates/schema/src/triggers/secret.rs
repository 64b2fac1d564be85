//! What signs the deliveries of a tenant's triggers.
//!
//! A map of 0 the value, sealed, 1 the beginning of it that is shown, 2 when it was made, ms, and the
//! same of the value before it, while both sign: 3 sealed, 4 its beginning, 5 made, ms, 6 valid until,
//! ms.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::Millis;
use reveille_core::trigger::secret::{PreviousSecret, SecretVersion, SigningSecret};

use crate::codec::{self, Record, RecordError};

impl Record for SigningSecret {
    fn encode(&self) -> Bytes {
        let previous = self.previous.as_ref();
        let fields = SecretFields {
            sealed: &self.current.sealed,
            prefix: &self.current.prefix,
            created_at: self.current.created_at.0,
            previous_sealed: previous.map(|it| &*it.version.sealed),
            previous_prefix: previous.map(|it| &*it.version.prefix),
            previous_created_at: previous.map(|it| it.version.created_at.0),
            previous_until: previous.map(|it| it.valid_until.0),
        };
        codec::write(128, &fields)
    }

    fn decode(value: &[u8]) -> Result<SigningSecret, RecordError> {
        codec::read::<SecretFields<'_>, _>("signing secret", value)
    }
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct SecretFields<'a> {
    #[n(0)]
    sealed: &'a str,
    #[n(1)]
    prefix: &'a str,
    #[n(2)]
    created_at: u64,
    #[n(3)]
    previous_sealed: Option<&'a str>,
    #[n(4)]
    previous_prefix: Option<&'a str>,
    #[n(5)]
    previous_created_at: Option<u64>,
    #[n(6)]
    previous_until: Option<u64>,
}

impl TryFrom<SecretFields<'_>> for SigningSecret {
    type Error = &'static str;

    fn try_from(fields: SecretFields<'_>) -> Result<SigningSecret, &'static str> {
        let version = |sealed: &str, prefix: &str, created_at| SecretVersion {
            sealed: sealed.into(),
            prefix: prefix.into(),
            created_at: Millis(created_at),
        };
        let previous = match (
            fields.previous_sealed,
            fields.previous_prefix,
            fields.previous_created_at,
            fields.previous_until,
        ) {
            (Some(sealed), Some(prefix), Some(created_at), Some(until)) => Some(PreviousSecret {
                version: version(sealed, prefix, created_at),
                valid_until: Millis(until),
            }),
            (None, None, None, None) => None,
            _ => return Err("a part of the secret before"),
        };
        let current = version(fields.sealed, fields.prefix, fields.created_at);
        Ok(SigningSecret { current, previous })
    }
}
