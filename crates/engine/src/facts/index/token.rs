//! Capability tokens by who holds them, and for what.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use reveille_core::fact::EntityUri;
use reveille_core::fact::target::{Object, Target};
use reveille_core::fact::token::{TokenNo, TokenRecord, Verb};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_schema::facts::decode_token;
use reveille_schema::keys;

use crate::app::IndexPart;
use crate::quota::TenantCounts;
use crate::records::damaged;

/// The tokens of all tenants.
#[derive(Default)]
pub struct TokenIndex {
    /// By which somebody may subscribe to something: the one that ends last is the last.
    held: HashMap<Holding, BTreeSet<(Millis, TokenNo)>>,
    known: HashMap<Bytes, KnownToken>,
    counts: TenantCounts,
}

/// What is known of a token: its tenant, and its place if somebody may subscribe by it.
type KnownToken = (Tenant, Option<(Holding, Millis, TokenNo)>);

/// Who holds it, and what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Holding {
    tenant: Tenant,
    subject: EntityUri,
    object: String,
}

impl IndexPart for TokenIndex {
    fn ranges(&self) -> Vec<(Bytes, Bytes)> {
        vec![keys::all_tokens()]
    }

    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged> {
        if let Some((tenant, held)) = self.known.remove(key) {
            self.counts.remove(&tenant);
            if let Some((holding, expires_at, no)) = held
                && let Some(tokens) = self.held.get_mut(&holding)
            {
                tokens.remove(&(expires_at, no));
                if tokens.is_empty() {
                    self.held.remove(&holding);
                }
            }
        }
        let Some(value) = value else { return Ok(()) };
        let unreadable = || Damaged::new("the key of a capability token is damaged");
        let (tenant, no) = keys::parse_token(key).ok_or_else(unreadable)?;
        let record = decode_token(&tenant, no, value).map_err(damaged)?;
        let held = holding(&record).map(|holding| (holding, record.grant.expires_at, no));
        if let Some((holding, expires_at, no)) = &held {
            self.held.entry(holding.clone()).or_default().insert((*expires_at, *no));
        }
        self.counts.add(&tenant);
        self.known.insert(key.clone(), (tenant, held));
        Ok(())
    }
}

fn holding(record: &TokenRecord) -> Option<Holding> {
    let grant = &record.grant;
    let is_held = record.revoked.is_none() && grant.verb == Verb::Subscribe;
    is_held.then(|| Holding {
        tenant: grant.tenant.clone(),
        subject: grant.subject.clone(),
        object: grant.object.to_string(),
    })
}

impl TokenIndex {
    /// The token that lets somebody subscribe to a target, of those that were not revoked the one
    /// that ends last.
    pub fn held_for(
        &self,
        tenant: &Tenant,
        subject: &EntityUri,
        target: &Target,
    ) -> Option<TokenNo> {
        let objects = [Object::One(target.clone()), Object::Any];
        let held = objects.into_iter().filter_map(|object| {
            let (tenant, subject) = (tenant.clone(), subject.clone());
            let holding = Holding { tenant, subject, object: object.to_string() };
            self.held.get(&holding)?.last().copied()
        });
        held.max().map(|(_, no)| no)
    }

    /// How many a tenant has, ended ones too.
    pub fn count(&self, tenant: &Tenant) -> usize {
        self.counts.get(tenant)
    }
}
