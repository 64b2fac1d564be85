//! What is kept of a capability token.
//!
//! A map of 0 subject, 1 verb: 0 read, 1 write, 2 subscribe, 2 object, 3 issued at, ms, 4 expires
//! at, ms, 5 revoked at, ms, 6 why. Its number and its tenant are in the key.

use bytes::Bytes;
use minicbor::{Decode, Encode};
use reveille_core::fact::EntityUri;
use reveille_core::fact::target::Object;
use reveille_core::fact::token::{Grant, Revoked, TokenNo, TokenRecord, Verb};
use reveille_core::{Millis, Tenant};

use crate::codec::{self, RecordError};

const VERBS: [Verb; 3] = [Verb::Read, Verb::Write, Verb::Subscribe];

pub fn encode_token(record: &TokenRecord) -> Bytes {
    let Grant { subject, verb, object, issued_at, expires_at, .. } = &record.grant;
    let verb = VERBS.iter().position(|it| it == verb).and_then(|at| u8::try_from(at).ok());
    let object = object.to_string();
    let fields = TokenFields {
        subject: subject.as_str(),
        verb: verb.expect("every verb has a number"),
        object: &object,
        issued_at: issued_at.0,
        expires_at: expires_at.0,
        revoked_at: record.revoked.as_ref().map(|it| it.at.0),
        reason: record.revoked.as_ref().and_then(|it| it.reason.as_deref()),
    };
    codec::write(64 + subject.as_str().len() + object.len(), &fields)
}

pub fn decode_token(
    tenant: &Tenant,
    no: TokenNo,
    value: &[u8],
) -> Result<TokenRecord, RecordError> {
    let wrong = |why| RecordError::new("capability token", why);
    let fields: TokenFields<'_> =
        minicbor::decode(value).map_err(|why| RecordError::new("capability token", why))?;
    let verb = VERBS.get(usize::from(fields.verb)).ok_or_else(|| wrong("no verb"))?;
    let grant = Grant {
        no,
        tenant: tenant.clone(),
        subject: EntityUri::parse(fields.subject).map_err(|_| wrong("no subject"))?,
        verb: *verb,
        object: Object::parse(fields.object).map_err(|_| wrong("no object"))?,
        issued_at: Millis(fields.issued_at),
        expires_at: Millis(fields.expires_at),
    };
    let reason = fields.reason.map(Into::into);
    let revoked = fields.revoked_at.map(|at| Revoked { at: Millis(at), reason });
    Ok(TokenRecord { grant, revoked })
}

#[derive(Encode, Decode)]
#[cbor(map)]
struct TokenFields<'a> {
    #[n(0)]
    subject: &'a str,
    #[n(1)]
    verb: u8,
    #[n(2)]
    object: &'a str,
    #[n(3)]
    issued_at: u64,
    #[n(4)]
    expires_at: u64,
    #[n(5)]
    revoked_at: Option<u64>,
    #[n(6)]
    reason: Option<&'a str>,
}
