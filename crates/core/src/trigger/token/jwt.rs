//! Tokens on the wire: JWTs with EdDSA, whose key is found by `kid`.
//!
//! ```text
//! {"alg":"EdDSA","kid":"tet_…","typ":"JWT"}
//! {"aud":"syntrix-trigger","sub":"trg_1","tenant":"acme","scopes":["trigger.read"],
//!  "allow_paths":["/rooms/room-1/"],"max_ops":5,"max_payload_kb":64,"bypass_rules":true,
//!  "origin":["trg_0","trg_1"],"dlv":"…","iat":…,"exp":…,"jti":"…"}
//! {"aud":"syntrix-system","sub":"system:trigger-worker","tenant":"acme",
//!  "roles":["system","service:trigger-worker"],"iat":…,"exp":…,"jti":"…"}
//! ```
//!
//! No other algorithm is known, and nothing is read of what a token says before its signature is
//! known to be ours.

use std::fmt;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::path::AllowedPath;
use super::{
    Issue, SYSTEM_AUDIENCE, SYSTEM_SUBJECT, Scopes, SystemClaims, TRIGGER_AUDIENCE, TokenClaims,
    TriggerClaims,
};
use crate::document::origin::Origin;
use crate::limits::TOKEN_BYTES_MAX;
use crate::signature::Ed25519Key;
use crate::tenant::Tenant;

/// Why a token lets nobody in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It does not say more: that would help only somebody who guesses.
    #[error(
        "the token is not one that this server gave out; use the newest token as it was received"
    )]
    Invalid,
    #[error("the token has expired; use the one of the newest delivery")]
    Expired,
}

/// The token would be longer than what is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token would be longer than {TOKEN_BYTES_MAX} bytes; allow fewer or shorter paths")]
pub struct TokenTooLong;

/// A key of the server's that signs tokens of triggers.
#[derive(Clone)]
pub struct TriggerKey {
    key: Ed25519Key,
    kid: String,
}

/// Reads tokens that were signed with one of these keys.
pub struct TokenVerifier<'k> {
    pub keys: &'k [TriggerKey],
}

impl TriggerKey {
    pub fn new(key: Ed25519Key) -> TriggerKey {
        let thumbprint = key.kid().strip_prefix("ds_").unwrap_or(key.kid());
        let kid = format!("tet_{thumbprint}");
        TriggerKey { key, kid }
    }

    /// The name by which the public key is found.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The public key as one of a JWK set (RFC 8037).
    pub fn jwk(&self) -> Value {
        let mut jwk = self.key.jwk();
        if let Some(fields) = jwk.as_object_mut() {
            fields.insert("kid".into(), self.kid.as_str().into());
        }
        jwk
    }

    /// The token of an execution.
    pub fn mint(&self, claims: &TriggerClaims) -> Result<String, TokenTooLong> {
        let scopes = claims.scopes.names().map(str::to_owned).collect();
        let paths = claims.allow_paths.iter().map(|path| path.as_str().to_owned()).collect();
        let origin = claims.origin.chain().iter().map(|it| it.to_string()).collect();
        self.sign(&WireClaims {
            aud: TRIGGER_AUDIENCE.into(),
            sub: claims.trigger.to_string(),
            tenant: claims.tenant.to_string(),
            scopes: Some(scopes),
            allow_paths: Some(paths),
            max_ops: claims.max_ops,
            max_payload_kb: claims.max_payload_kb,
            bypass_rules: claims.bypass_rules.then_some(true),
            origin: Some(origin),
            dlv: claims.delivery.as_ref().map(|it| it.to_string()),
            ..WireClaims::of_issue(&claims.issue)
        })
    }

    /// The token of an in-house worker.
    pub fn mint_system(&self, claims: &SystemClaims) -> Result<String, TokenTooLong> {
        self.sign(&WireClaims {
            aud: SYSTEM_AUDIENCE.into(),
            sub: SYSTEM_SUBJECT.into(),
            tenant: claims.tenant.to_string(),
            roles: Some(claims.roles.iter().map(|role| role.to_string()).collect()),
            ..WireClaims::of_issue(&claims.issue)
        })
    }

    fn sign(&self, claims: &WireClaims) -> Result<String, TokenTooLong> {
        let header = format!(r#"{{"alg":"EdDSA","kid":"{}","typ":"JWT"}}"#, self.kid);
        let claims = serde_json::to_vec(claims).expect("texts and numbers can be written");
        let mut token = URL_SAFE_NO_PAD.encode(header);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self.key.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        if token.len() > TOKEN_BYTES_MAX { Err(TokenTooLong) } else { Ok(token) }
    }
}

/// Names the key, and shows nothing of its secret.
impl fmt::Debug for TriggerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TriggerKey({})", self.kid)
    }
}

impl TokenVerifier<'_> {
    /// What a token says that is ours and has not expired. `now_s` is what the wall clock shows.
    pub fn verify(&self, token: &str, now_s: u64) -> Result<TokenClaims, TokenError> {
        let claims = self.read(token).ok_or(TokenError::Invalid)?;
        if now_s >= claims.issue().expires_at_s {
            return Err(TokenError::Expired);
        }
        Ok(claims)
    }

    fn read(&self, token: &str) -> Option<TokenClaims> {
        if token.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.alg != "EdDSA" || header.crit.is_some() {
            return None;
        }
        let key = self.keys.iter().find(|key| key.kid == header.kid)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        let public = UnparsedPublicKey::new(&ED25519, key.key.public());
        public.verify(signed.as_bytes(), &signature).ok()?;
        let claims = URL_SAFE_NO_PAD.decode(payload).ok()?;
        serde_json::from_slice::<WireClaims>(&claims).ok()?.read()
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    /// What must be understood of a token: there is nothing that we would.
    crit: Option<Value>,
}

#[derive(Default, Serialize, Deserialize)]
struct WireClaims {
    aud: String,
    sub: String,
    tenant: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scopes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    allow_paths: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_ops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_payload_kb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bypass_rules: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    roles: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dlv: Option<String>,
    iat: u64,
    exp: u64,
    jti: String,
}

impl WireClaims {
    fn of_issue(issue: &Issue) -> WireClaims {
        WireClaims {
            iat: issue.issued_at_s,
            exp: issue.expires_at_s,
            jti: issue.id.to_string(),
            ..WireClaims::default()
        }
    }

    fn read(self) -> Option<TokenClaims> {
        let tenant = Tenant::parse(&self.tenant).ok()?;
        let issue = Issue { id: self.jti.into(), issued_at_s: self.iat, expires_at_s: self.exp };
        match self.aud.as_str() {
            SYSTEM_AUDIENCE => {
                let roles = self.roles.unwrap_or_default().into_iter().map(Into::into).collect();
                Some(TokenClaims::System(SystemClaims { tenant, roles, issue }))
            }
            TRIGGER_AUDIENCE => {
                let scopes = self.scopes?;
                let scopes = Scopes::parse_names(scopes.iter().map(String::as_str)).ok()?;
                let paths = self.allow_paths?;
                let paths = paths.iter().map(|path| AllowedPath::parse(path).ok());
                Some(TokenClaims::Trigger(TriggerClaims {
                    tenant,
                    trigger: self.sub.into(),
                    scopes,
                    allow_paths: paths.collect::<Option<_>>()?,
                    max_ops: self.max_ops,
                    max_payload_kb: self.max_payload_kb,
                    bypass_rules: self.bypass_rules.unwrap_or(false),
                    origin: Origin::of_chain(self.origin.unwrap_or_default()).ok()?,
                    delivery: self.dlv.map(Into::into),
                    issue,
                }))
            }
            _ => None,
        }
    }
}
