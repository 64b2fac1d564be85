//! Whether a subscription may be told of something: the token first, then the key and its scopes,
//! then who belongs to the garden, all of it seen at one place of the log; and only then is anything
//! read of what is told. Nothing of this is remembered from one look to the next.

use reveille_core::delivery::hook::{Hook, HookId};
use reveille_core::fact::access::{Look, Ruling, rule};
use reveille_core::fact::garden::{GardenNo, Membership, Standing};
use reveille_core::fact::principal::Principal;
use reveille_core::fact::token::{TokenRecord, TokenStanding};
use reveille_core::key::Key;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;
use reveille_kernel::txn::ReadError;
use reveille_schema::facts::{FactSubject, GardenRecord, SubscriptionSpec, decode_token};
use reveille_schema::record::EventRecord;
use reveille_schema::{Record, keys, record};

use crate::records::{KeyReader, damaged};

/// What an event is about. Nothing of what it says is known by that.
pub(super) fn subject_of(event: &EventRecord) -> Result<FactSubject, Damaged> {
    let subject = event.subject.as_deref().and_then(FactSubject::parse);
    subject.ok_or_else(|| Damaged(format!("event {} is about nothing", event.id)))
}

/// Whether a hook may be told of what is in a garden, or in none.
pub(super) fn ask(
    look: &mut dyn KeyReader,
    hook: &Hook,
    spec: &SubscriptionSpec,
    garden: Option<GardenNo>,
    now: Millis,
) -> Result<Ruling, ReadError> {
    let (tenant, subscription) = (&hook.tenant, &spec.spec);
    let token = token(look, tenant, spec, now)?;
    // Each is looked at only if nothing before it has decided: what is `None` here is not needed.
    let mut seen = Look {
        subscriber: &subscription.subscriber,
        token,
        principal: None,
        scope: &subscription.wanted.scope,
        garden: None,
    };
    if token != TokenStanding::Valid {
        return Ok(rule(&seen));
    }
    let principal = principal(look, tenant, hook.created_by.as_deref(), spec)?;
    seen.principal = principal.as_ref();
    let ruling = rule(&seen);
    if let (Ruling::Deliver, Some(garden)) = (ruling, garden) {
        let standing = standing(look, tenant, spec, garden, hook.id)?;
        return Ok(rule(&Look { garden: Some(standing), ..seen }));
    }
    Ok(ruling)
}

fn token(
    look: &mut dyn KeyReader,
    tenant: &Tenant,
    spec: &SubscriptionSpec,
    now: Millis,
) -> Result<TokenStanding, ReadError> {
    let no = spec.spec.token;
    let value = look.value_of(&keys::token(tenant, no))?;
    let record: Option<TokenRecord> =
        value.map(|value| decode_token(tenant, no, &value)).transpose().map_err(damaged)?;
    Ok(TokenRecord::standing(record.as_ref(), &spec.spec.subscriber, now))
}

/// Whoever holds the key by which a subscription was made; `None` once it is revoked.
fn principal(
    look: &mut dyn KeyReader,
    tenant: &Tenant,
    created_by: Option<&str>,
    spec: &SubscriptionSpec,
) -> Result<Option<Principal>, ReadError> {
    let Some(hash) = &spec.key else {
        // One that is kept nowhere cannot be looked at.
        return Ok(created_by.is_none().then(Principal::local));
    };
    let Some(value) = look.value_of(&keys::api_key(hash))? else { return Ok(None) };
    let key: Key = record::decode_key(&value).map_err(damaged)?;
    let is_theirs = key.access.tenant.as_ref().is_none_or(|of| of == tenant);
    let is_same = created_by == Some(&*key.id);
    Ok((is_theirs && is_same).then(|| Principal::of_key(&key.id, &key.access)))
}

/// What a subscriber is in a garden, for a subscription of this age.
fn standing(
    look: &mut dyn KeyReader,
    tenant: &Tenant,
    spec: &SubscriptionSpec,
    garden: GardenNo,
    since: HookId,
) -> Result<Standing, ReadError> {
    let value = look.value_of(&keys::garden(tenant, garden))?;
    let known: Option<GardenRecord> =
        value.map(|value| GardenRecord::decode(&value)).transpose().map_err(damaged)?;
    // Of one that was purged nobody is a member. Whoever has subscribed to it was.
    let Some(known) = known else {
        let was = spec.spec.garden == Some(garden);
        return Ok(if was { Standing::Ended } else { Standing::Never });
    };
    let value = look.value_of(&keys::membership(tenant, garden, &spec.spec.subscriber))?;
    let membership: Option<Membership> =
        value.map(|value| Membership::decode(&value)).transpose().map_err(damaged)?;
    let closed = known.closed.map(|(at, _)| at);
    Ok(membership.unwrap_or_default().standing(since.0, closed))
}
