//! Capability tokens: signed grants of one verb on one object to one subject, which can be revoked.
//!
//! ```text
//! token = base64url(claims) "." base64url(HMAC-SHA256(key, "reveille capability\0" claims))
//! claims = JSON with sorted keys and no spaces: exp, iat, object, subject, tenant, token_id,
//!          token_version, verb
//! ```
//!
//! The key is for this alone. A token by itself opens nothing: what is kept of it is looked at each
//! time, and whoever revokes it changes that.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::name::{EntityUri, Id};
use super::target::{Object, Target};
use crate::limits::TOKEN_BYTES_MAX;
use crate::tenant::Tenant;
use crate::time::Millis;

const DOMAIN: &[u8] = b"reveille capability\0";
const TOKEN_VERSION: u64 = 1;

/// A token, from the same numbers as everything else in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenNo(pub u64);

/// What a token allows to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    Read,
    Write,
    Subscribe,
}

/// The text is no verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`verb` is one of \"read\", \"write\" and \"subscribe\"")]
pub struct VerbError;

impl Verb {
    pub const ALL: [Verb; 3] = [Verb::Read, Verb::Write, Verb::Subscribe];

    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::Subscribe => "subscribe",
        }
    }

    /// The verb of this name.
    pub fn parse(name: &str) -> Result<Verb, VerbError> {
        Verb::ALL.into_iter().find(|verb| verb.as_str() == name).ok_or(VerbError)
    }
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub no: TokenNo,
    pub tenant: Tenant,
    pub subject: EntityUri,
    pub verb: Verb,
    pub object: Object,
    pub issued_at: Millis,
    pub expires_at: Millis,
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    pub grant: Grant,
    pub revoked: Option<Revoked>,
}

/// When a token was revoked, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoked {
    pub at: Millis,
    pub reason: Option<Arc<str>>,
}

/// How a token stands now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenStanding {
    Valid,
    Revoked,
    Expired,
    /// There is none of this name, or it is somebody else's.
    Unknown,
}

/// Why a token does not let somebody do what they ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    #[error(
        "the capability token is not one that this server has signed for you; have an admin issue \
         one for your own entity"
    )]
    Invalid,
    #[error("the capability token was revoked; have an admin issue another")]
    Revoked,
    #[error("the capability token has expired; have an admin issue another")]
    Expired,
    #[error(
        "a capability token with verb `subscribe` on exactly this target is needed; have an admin \
         issue one, or send another in `Stigmem-Capability`"
    )]
    Insufficient,
}

impl CapabilityError {
    /// The word that the world knows it by.
    pub fn code(self) -> &'static str {
        match self {
            CapabilityError::Invalid => "token_invalid",
            CapabilityError::Revoked => "token_revoked",
            CapabilityError::Expired => "token_expired",
            CapabilityError::Insufficient => "insufficient_capability",
        }
    }
}

/// Signs capability tokens.
pub struct CapabilityKey(hmac::Key);

/// Says that there is one, and nothing of it.
impl fmt::Debug for CapabilityKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("CapabilityKey")
    }
}

impl CapabilityKey {
    pub fn new(key: &[u8; 32]) -> CapabilityKey {
        CapabilityKey(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// The key that follows from the server's own, which signs other things.
    pub fn of_server(key: &[u8; 32]) -> CapabilityKey {
        let own = hmac::Key::new(hmac::HMAC_SHA256, key);
        let tag = hmac::sign(&own, b"reveille capability key");
        CapabilityKey(hmac::Key::new(hmac::HMAC_SHA256, tag.as_ref()))
    }

    /// The token that says this.
    pub fn mint(&self, grant: &Grant) -> String {
        let claims = grant.claims();
        let tag = hmac::sign(&self.0, &signed(claims.as_bytes()));
        let (claims, tag) = (URL_SAFE_NO_PAD.encode(claims), URL_SAFE_NO_PAD.encode(tag));
        format!("{claims}.{tag}")
    }

    /// What a token says, if it was minted with this key. Its record says whether that still holds.
    pub fn verify(&self, token: &str) -> Result<Grant, CapabilityError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(CapabilityError::Invalid);
        }
        let (claims, tag) = token.split_once('.').ok_or(CapabilityError::Invalid)?;
        let decode = |text| URL_SAFE_NO_PAD.decode(text).map_err(|_| CapabilityError::Invalid);
        let (claims, tag) = (decode(claims)?, decode(tag)?);
        hmac::verify(&self.0, &signed(&claims), &tag).map_err(|_| CapabilityError::Invalid)?;
        Grant::read(&claims).ok_or(CapabilityError::Invalid)
    }
}

fn signed(claims: &[u8]) -> Vec<u8> {
    [DOMAIN, claims].concat()
}

impl TokenNo {
    /// The name that the world knows it by.
    pub fn id(self) -> String {
        Id::Token(self.0).to_string()
    }

    /// The token of this name.
    pub fn parse(text: &str) -> Option<TokenNo> {
        match Id::parse(text)? {
            Id::Token(number) => Some(TokenNo(number)),
            Id::Event(..) | Id::Fact(_) => None,
        }
    }
}

impl Grant {
    /// The claims as they are signed. Keys of an object are sorted.
    fn claims(&self) -> String {
        let claims = json!({
            "token_version": TOKEN_VERSION,
            "token_id": self.no.id(),
            "tenant": self.tenant.as_str(),
            "subject": self.subject.as_str(),
            "verb": self.verb.as_str(),
            "object": self.object.to_string(),
            "iat": self.issued_at.0,
            "exp": self.expires_at.0,
        });
        claims.to_string()
    }

    fn read(claims: &[u8]) -> Option<Grant> {
        let claims: Value = serde_json::from_slice(claims).ok()?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let number = |name: &str| claims.get(name).and_then(Value::as_u64);
        if number("token_version")? != TOKEN_VERSION {
            return None;
        }
        Some(Grant {
            no: TokenNo::parse(text("token_id")?)?,
            tenant: Tenant::parse(text("tenant")?).ok()?,
            subject: EntityUri::parse(text("subject")?).ok()?,
            verb: Verb::parse(text("verb")?).ok()?,
            object: Object::parse(text("object")?).ok()?,
            issued_at: Millis(number("iat")?),
            expires_at: Millis(number("exp")?),
        })
    }
}

impl TokenRecord {
    /// How the token stands for somebody. What is revoked stays revoked when it runs out.
    pub fn standing(
        record: Option<&TokenRecord>,
        subject: &EntityUri,
        now: Millis,
    ) -> TokenStanding {
        match record {
            Some(record) if record.grant.subject != *subject => TokenStanding::Unknown,
            Some(record) if record.revoked.is_some() => TokenStanding::Revoked,
            Some(record) if record.grant.expires_at <= now => TokenStanding::Expired,
            Some(_) => TokenStanding::Valid,
            None => TokenStanding::Unknown,
        }
    }

    /// Whether it lets somebody do this to a target; `None` is a token of which nothing is kept.
    pub fn check(
        record: Option<&TokenRecord>,
        subject: &EntityUri,
        (verb, target): (Verb, &Target),
        now: Millis,
    ) -> Result<(), CapabilityError> {
        match TokenRecord::standing(record, subject, now) {
            TokenStanding::Unknown => return Err(CapabilityError::Invalid),
            TokenStanding::Revoked => return Err(CapabilityError::Revoked),
            TokenStanding::Expired => return Err(CapabilityError::Expired),
            TokenStanding::Valid => {}
        }
        let covers = |grant: &Grant| grant.verb == verb && grant.object.covers(target);
        if record.is_some_and(|record| covers(&record.grant)) {
            Ok(())
        } else {
            Err(CapabilityError::Insufficient)
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn grant() -> Grant {
        Grant {
            no: TokenNo(9),
            tenant: Tenant::parse("acme").unwrap(),
            subject: EntityUri::parse("user:alice").unwrap(),
            verb: Verb::Subscribe,
            object: Object::parse("scope:company").unwrap(),
            issued_at: Millis(1_000),
            expires_at: Millis(2_000),
        }
    }

    #[test]
    fn a_token_says_what_was_signed_and_by_whom() {
        let key = CapabilityKey::new(&[7; 32]);
        let token = key.mint(&grant());
        assert_eq!(key.verify(&token), Ok(grant()));
        let claims = URL_SAFE_NO_PAD.decode(token.split_once('.').unwrap().0).unwrap();
        let expected = r#"{"exp":2000,"iat":1000,"object":"scope:company","subject":"user:alice","tenant":"acme","token_id":"00000000-0000-8003-8000-000000000009","token_version":1,"verb":"subscribe"}"#;
        assert_eq!(std::str::from_utf8(&claims).unwrap(), expected);
        assert_eq!(CapabilityKey::new(&[8; 32]).verify(&token), Err(CapabilityError::Invalid));
        assert_eq!(format!("{key:?}"), "CapabilityKey");
    }

    #[test]
    fn no_changed_character_goes_unnoticed() {
        let key = CapabilityKey::new(&[7; 32]);
        let token = key.mint(&grant());
        for at in 0..token.len() {
            let mut bent = token.clone().into_bytes();
            bent[at] = if bent[at] == b'B' { b'C' } else { b'B' };
            let bent = String::from_utf8(bent).unwrap();
            assert!(key.verify(&bent).is_err(), "{at}");
        }
        let claims = token.split_once('.').unwrap().0;
        for bad in
            ["", ".", claims, &format!("{claims}."), &format!("{token}."), &"x".repeat(9_000)]
        {
            assert_eq!(key.verify(bad), Err(CapabilityError::Invalid));
        }
    }

    #[test]
    fn a_token_of_another_version_is_none() {
        let key = CapabilityKey::new(&[7; 32]);
        let claims = grant().claims().replace("\"token_version\":1", "\"token_version\":2");
        let tag = hmac::sign(&key.0, &signed(claims.as_bytes()));
        let token = format!("{}.{}", URL_SAFE_NO_PAD.encode(&claims), URL_SAFE_NO_PAD.encode(tag));
        assert_eq!(key.verify(&token), Err(CapabilityError::Invalid));
    }

    #[test]
    fn what_is_kept_of_a_token_says_whether_it_holds() {
        let alice = EntityUri::parse("user:alice").unwrap();
        let bob = EntityUri::parse("user:bob").unwrap();
        let valid = TokenRecord { grant: grant(), revoked: None };
        let revoked = TokenRecord {
            revoked: Some(Revoked { at: Millis(1_500), reason: None }),
            ..valid.clone()
        };
        let standing = |record, who, now| TokenRecord::standing(record, who, Millis(now));
        for (record, who, now, expected) in [
            (Some(&valid), &alice, 1_999, TokenStanding::Valid),
            (Some(&valid), &alice, 2_000, TokenStanding::Expired),
            (Some(&valid), &bob, 1_500, TokenStanding::Unknown),
            (Some(&revoked), &alice, 1_500, TokenStanding::Revoked),
            (Some(&revoked), &alice, 9_000, TokenStanding::Revoked),
            (None, &alice, 1_500, TokenStanding::Unknown),
        ] {
            assert_eq!(standing(record, who, now), expected, "{record:?} {who} {now}");
        }
    }

    #[test]
    fn s_10_a_token_is_for_its_verb_and_its_object() {
        let alice = EntityUri::parse("user:alice").unwrap();
        let record = TokenRecord { grant: grant(), revoked: None };
        let check = |verb, target: &str, now| {
            let target = Target::parse(target).unwrap();
            TokenRecord::check(Some(&record), &alice, (verb, &target), Millis(now))
        };
        assert_eq!(check(Verb::Subscribe, "scope:company", 1_500), Ok(()));
        let insufficient = Err(CapabilityError::Insufficient);
        assert_eq!(check(Verb::Subscribe, "scope:public", 1_500), insufficient);
        assert_eq!(check(Verb::Read, "scope:company", 1_500), insufficient);
        assert_eq!(check(Verb::Subscribe, "scope:public", 2_500), Err(CapabilityError::Expired));
        let target = Target::parse("scope:company").unwrap();
        let none = TokenRecord::check(None, &alice, (Verb::Subscribe, &target), Millis(0));
        assert_eq!(none, Err(CapabilityError::Invalid));
    }
}
