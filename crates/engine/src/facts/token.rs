//! Capability tokens: issuing and revoking them. A revoked one holds for nothing from the answer on.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::Millis;
use reveille_core::Tenant;
use reveille_core::fact::EntityUri;
use reveille_core::fact::principal::Principal;
use reveille_core::fact::target::Object;
use reveille_core::fact::token::{Grant, Revoked, TokenNo, TokenRecord, Verb};
use reveille_kernel::command::{Command, Decision};
use reveille_schema::facts::encode_token;
use reveille_schema::keys;

use super::error::FactRejection;
use super::index::TokenIndex;
use super::limits::{ENDED_TOKEN_MS, TOKENS_MAX};
use super::txn::FactTxn;
use crate::app::{App, Txn};

/// Issues a token.
#[derive(Debug, Clone)]
pub struct IssueToken {
    pub tenant: Tenant,
    pub by: Principal,
    pub subject: EntityUri,
    pub verb: Verb,
    pub object: Object,
    pub ttl_ms: u64,
}

/// Revokes a token.
#[derive(Debug, Clone)]
pub struct RevokeToken {
    pub tenant: Tenant,
    pub by: Principal,
    pub no: TokenNo,
    pub reason: Option<Arc<str>>,
}

impl Command<App> for IssueToken {
    type Answer = Grant;
    type Rejection = FactRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Grant, FactRejection> {
        let IssueToken { tenant, by, subject, verb, object, ttl_ms } = self;
        if !by.is_admin || !by.writes {
            return Ok(Err(FactRejection::NotAdmin));
        }
        txn.rests_on_index();
        if txn.index().of::<TokenIndex>().count(tenant) >= TOKENS_MAX {
            return Ok(Err(FactRejection::TooManyTokens));
        }
        let (no, now) = (TokenNo(txn.take_id()), txn.now());
        let grant = Grant {
            no,
            tenant: tenant.clone(),
            subject: subject.clone(),
            verb: *verb,
            object: object.clone(),
            issued_at: now,
            expires_at: now + *ttl_ms,
        };
        keep_until(txn, &grant, grant.expires_at + ENDED_TOKEN_MS);
        let record = TokenRecord { grant: grant.clone(), revoked: None };
        txn.set(keys::token(tenant, no), encode_token(&record));
        Ok(Ok(grant))
    }

    fn needs_room(&self) -> bool {
        true
    }
}

impl Command<App> for RevokeToken {
    type Answer = Millis;
    type Rejection = FactRejection;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<Millis, FactRejection> {
        let RevokeToken { tenant, by, no, reason } = self;
        if !by.is_admin || !by.writes {
            return Ok(Err(FactRejection::NotAdmin));
        }
        let Some(mut record) = txn.token(tenant, *no)? else {
            return Ok(Err(FactRejection::TokenNotFound));
        };
        if record.revoked.is_some() {
            return Ok(Err(FactRejection::TokenRevoked));
        }
        let at = txn.now();
        record.revoked = Some(Revoked { at, reason: reason.clone() });
        keep_until(txn, &record.grant, at + ENDED_TOKEN_MS);
        txn.set(keys::token(tenant, *no), encode_token(&record));
        Ok(Ok(at))
    }
}

/// A token is forgotten some time after its end: to whoever looks it is as good as revoked then.
fn keep_until(txn: &mut Txn<'_>, grant: &Grant, at: Millis) {
    let key = keys::token(&grant.tenant, grant.no);
    txn.set(keys::later(at, &key), Bytes::new());
}
