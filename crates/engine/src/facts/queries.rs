//! What the faces may ask about facts.

use std::sync::Arc;

use reveille_core::audit::AuditEntry;
use reveille_core::delivery::hook::HookId;
use reveille_core::fact::access::{Ruling, may_read};
use reveille_core::fact::card::Card;
use reveille_core::fact::garden::{Garden, GardenRole, GardenSlug, Membership};
use reveille_core::fact::name::uuid_v7;
use reveille_core::fact::principal::Principal;
use reveille_core::fact::statement::Statement;
use reveille_core::fact::subscription::Wanted;
use reveille_core::fact::target::Object;
use reveille_core::fact::token::{CapabilityError, Grant, TokenNo, TokenRecord, Verb};
use reveille_core::fact::{EntityUri, FACE, Fact, FactNo, Scope};
use reveille_core::key::{BOOTSTRAP_KEY_ID, KeyHash};
use reveille_core::trace::Trace;
use reveille_core::{Millis, StreamPath, Tenant};
use reveille_kernel::command::{Command, Traced};
use reveille_kernel::error::Damaged;
use reveille_kernel::{fairness, task};
use reveille_schema::facts::{FactRecord, GardenRecord, decode_card, decode_token};
use reveille_schema::{Record, keys, record};
use reveille_store::state::Reader;

use super::assert::AssertFact;
use super::audit;
use super::card::RefreshCard;
use super::error::{FactError, FactRejection};
use super::garden::{CreateGarden, DeleteGarden, GrantRole, RemoveMember};
use super::index::{GardenIndex, SubscriptionIndex};
use super::limits::{FACTS_PAGE_MAX, REPLAY_PAGE_MAX};
use super::page::{FactFilter, FactPage, PageRun, gardens_of, is_member};
use super::publish::fact_stream;
use super::replay::{Replay, ReplayPage, ReplayRun};
use super::show::{GardenView, MemberView, SubscriptionPage, SubscriptionView};
use super::subscription::{CancelSubscription, CreateSubscription, DeleteSubscription, Subscribed};
use super::token::{IssueToken, RevokeToken};
use crate::app::App;
use crate::audit::Audited;
use crate::deliveries::index::HookIndex;
use crate::engine::Engine;
use crate::keyring::Keyring;
use crate::records::{ReadRecord, damaged};

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactCaller {
    pub tenant: Tenant,
    pub principal: Principal,
    /// The id of their key, if the server asked for one.
    pub key: Option<Arc<str>>,
}

/// A subscription that somebody has asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedSubscription {
    pub view: SubscriptionView,
    /// Whether it was not there before.
    pub is_new: bool,
}

impl Engine {
    /// The stream that has copies of what is in a scope and in no garden.
    pub fn fact_stream(scope: Scope) -> StreamPath {
        fact_stream(scope)
    }

    /// Says something, or takes it back.
    pub async fn assert_fact(
        &self,
        caller: &FactCaller,
        said: Statement,
        trace: Option<Trace>,
    ) -> Result<Box<Fact>, FactError> {
        said.check().map_err(FactRejection::from)?;
        let tenant = &caller.tenant;
        self.fairness().request(tenant, fairness::TAKEN_IN);
        let command = AssertFact::new(tenant.clone(), caller.principal.clone(), said);
        self.submit(tenant, &Traced { trace, command }).await
    }

    /// The fact of a number, if the caller may read it.
    pub fn fact(&self, caller: &FactCaller, no: FactNo) -> Result<Fact, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let reader = self.partition(tenant).state.reader();
        let key = keys::fact(tenant, no);
        let record = (&reader).read(&key, |value| FactRecord::decode(no, value))?;
        let fact = record.ok_or(FactRejection::FactNotFound)?.fact;
        let member = match fact.garden {
            None => None,
            Some(garden) => Some(self.role(&reader, tenant, garden, &principal.entity)?),
        };
        match may_read(principal, fact.said.scope, member) {
            true => Ok(fact),
            false => Err(FactRejection::FactForbidden.into()),
        }
    }

    fn role(
        &self,
        reader: &Reader,
        tenant: &Tenant,
        garden: reveille_core::fact::garden::GardenNo,
        member: &EntityUri,
    ) -> Result<Option<GardenRole>, Damaged> {
        if !is_member(reader, tenant, garden, member)? {
            return Ok(None);
        }
        let mut look = reader;
        let key = keys::membership(tenant, garden, member);
        let membership = look.read(&key, Membership::decode)?;
        Ok(membership.and_then(|it| it.current).map(|(role, _)| role))
    }

    /// Facts that the caller may read.
    pub async fn facts(
        &self,
        caller: &FactCaller,
        filter: FactFilter,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<FactPage, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let work = u64::try_from(limit.min(FACTS_PAGE_MAX) / 16).unwrap_or(0);
        self.fairness().request(tenant, fairness::TAKEN_IN * (1 + work));
        let garden = match &filter.garden {
            None => None,
            Some(slug) => Some(self.known_garden(tenant, slug)?),
        };
        let keyring = self.extension::<Arc<Keyring>>();
        let after = cursor.map(|cursor| keyring.open_cursor(tenant, &cursor)).transpose();
        let run = PageRun {
            reader: self.partition(tenant).state.reader(),
            tenant: tenant.clone(),
            principal: principal.clone(),
            filter,
            garden,
            limit,
            after: after.map_err(|_| FactRejection::Cursor)?,
            wall: self.clock().wall(),
        };
        let FactPage { facts, next } = task::blocking(move || run.read()).await?;
        Ok(FactPage { facts, next: next.map(|place| keyring.seal_cursor(tenant, &place)) })
    }

    /// Makes a card anew.
    pub async fn refresh_card(
        &self,
        caller: &FactCaller,
        entity: EntityUri,
        scope: Scope,
    ) -> Result<Card, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        self.fairness().request(tenant, fairness::TAKEN_IN * 4);
        let command = RefreshCard { tenant: tenant.clone(), by: principal.clone(), entity, scope };
        self.submit(tenant, &command).await
    }

    /// A card as it was made last.
    pub fn card(
        &self,
        caller: &FactCaller,
        entity: EntityUri,
        scope: Scope,
    ) -> Result<Card, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        if !principal.may_read(scope) {
            return Err(FactRejection::ScopeForbidden(scope.as_str().into()).into());
        }
        let reader = self.partition(tenant).state.reader();
        let key = keys::card(tenant, &entity, scope);
        let card = (&reader).read(&key, |value| decode_card(entity, scope, value))?;
        card.ok_or_else(|| FactRejection::CardNotFound.into())
    }

    /// Makes a garden, whose admin the caller is.
    pub async fn create_garden(
        &self,
        caller: &FactCaller,
        slug: GardenSlug,
        name: Arc<str>,
        scope: Scope,
    ) -> Result<Garden, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        if !principal.writes {
            let denied = reveille_core::fact::access::WriteDenied::Permission;
            return Err(FactRejection::from(denied).into());
        }
        let entry = self.audit_entry(audit::GARDEN_CREATED, Some(tenant), slug.as_str());
        let by = principal.clone();
        let command = CreateGarden { tenant: tenant.clone(), by, slug, name, scope };
        self.submit_fact_change(tenant, command, entry).await
    }

    /// Deletes a garden: from the answer on nobody belongs to it.
    pub async fn delete_garden(
        &self,
        caller: &FactCaller,
        slug: GardenSlug,
    ) -> Result<(), FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let entry = self.audit_entry(audit::GARDEN_DELETED, Some(tenant), slug.as_str());
        let command = DeleteGarden { tenant: tenant.clone(), by: principal.clone(), slug };
        self.submit_fact_change(tenant, command, entry).await
    }

    /// A garden that the caller belongs to.
    pub fn garden(&self, caller: &FactCaller, slug: &GardenSlug) -> Result<GardenView, FactError> {
        let no = self.known_garden(&caller.tenant, slug)?;
        let reader = self.partition(&caller.tenant).state.reader();
        let view = self.garden_view(&reader, caller, no)?;
        view.ok_or_else(|| FactRejection::NotMember.into())
    }

    /// The gardens that the caller belongs to, oldest first.
    pub fn gardens(&self, caller: &FactCaller) -> Result<Vec<GardenView>, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let reader = self.partition(tenant).state.reader();
        let mut found = Vec::new();
        for no in gardens_of(&reader, tenant, &principal.entity)? {
            found.extend(self.garden_view(&reader, caller, no)?);
        }
        Ok(found)
    }

    fn garden_view(
        &self,
        reader: &Reader,
        caller: &FactCaller,
        no: reveille_core::fact::garden::GardenNo,
    ) -> Result<Option<GardenView>, Damaged> {
        let FactCaller { tenant, principal, .. } = caller;
        let Some(role) = self.role(reader, tenant, no, &principal.entity)? else { return Ok(None) };
        let mut look = reader;
        let record = look.read(&keys::garden(tenant, no), GardenRecord::decode)?;
        Ok(record.map(|record| GardenView { garden: record.garden, role }))
    }

    fn known_garden(
        &self,
        tenant: &Tenant,
        slug: &GardenSlug,
    ) -> Result<reveille_core::fact::garden::GardenNo, FactError> {
        let no = self.partition(tenant).lock().index.of::<GardenIndex>().named(tenant, slug);
        no.ok_or_else(|| FactRejection::GardenNotFound(slug.to_shared()).into())
    }

    /// Makes somebody a member of a garden, or (`is_new` false) another kind of member.
    pub async fn grant_garden_role(
        &self,
        caller: &FactCaller,
        slug: GardenSlug,
        member: EntityUri,
        role: GardenRole,
        is_new: bool,
    ) -> Result<MemberView, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let action = if is_new { audit::MEMBER_ADDED } else { audit::MEMBER_CHANGED };
        let mut entry = self.audit_entry(action, Some(tenant), slug.as_str());
        entry.reason = Some(format!("{member}: {}", role.as_str()).into());
        let (by, who) = (principal.clone(), member.clone());
        let command = GrantRole { tenant: tenant.clone(), by, slug, member: who, role, is_new };
        let membership = self.submit_fact_change(tenant, command, entry).await?;
        Ok(MemberView { member, membership })
    }

    /// Ends a membership: from the answer on nothing of the garden is sent or shown to them.
    pub async fn remove_garden_member(
        &self,
        caller: &FactCaller,
        slug: GardenSlug,
        member: EntityUri,
    ) -> Result<(), FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let mut entry = self.audit_entry(audit::MEMBER_REMOVED, Some(tenant), slug.as_str());
        entry.reason = Some(member.to_shared());
        let by = principal.clone();
        let command = RemoveMember { tenant: tenant.clone(), by, slug, member };
        self.submit_fact_change(tenant, command, entry).await
    }

    /// Who belongs to a garden of the caller's, and who did, in the order of their names; from
    /// after one on.
    pub fn garden_members(
        &self,
        caller: &FactCaller,
        slug: &GardenSlug,
        after: Option<&EntityUri>,
        limit: usize,
    ) -> Result<(Vec<MemberView>, bool), FactError> {
        let garden = self.garden(caller, slug)?.garden.no;
        let tenant = &caller.tenant;
        let reader = self.partition(tenant).state.reader();
        let (first, to) = keys::memberships(tenant, garden);
        let after = after.map(|it| keys::membership(tenant, garden, it));
        let from = after.map_or(first, |it| reveille_core::key_range::above(&it));
        let limit = limit.clamp(1, FACTS_PAGE_MAX);
        let mut found = Vec::new();
        for (key, value) in reader.range(&from, &to, limit + 1).map_err(Damaged::from)? {
            let parsed = keys::parse_membership(&key);
            let (_, _, member) = parsed.ok_or_else(|| Damaged::new("a membership is damaged"))?;
            let membership = Membership::decode(&value).map_err(damaged)?;
            found.push(MemberView { member, membership });
        }
        let has_more = found.len() > limit;
        found.truncate(limit);
        Ok((found, has_more))
    }

    /// Issues a capability token. Its text is nowhere but in this answer.
    pub async fn issue_capability(
        &self,
        caller: &FactCaller,
        subject: EntityUri,
        verb: Verb,
        object: Object,
        ttl_ms: u64,
    ) -> Result<(Grant, String), FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let mut entry = self.audit_entry(audit::TOKEN_ISSUED, Some(tenant), subject.as_str());
        entry.reason = Some(format!("{} {object}", verb.as_str()).into());
        let (of, by) = (tenant.clone(), principal.clone());
        let command = IssueToken { tenant: of, by, subject, verb, object, ttl_ms };
        let grant = self.submit_fact_change(tenant, command, entry).await?;
        let grant = Grant {
            issued_at: self.date_of(grant.issued_at),
            expires_at: self.date_of(grant.expires_at),
            ..grant
        };
        let text = self.extension::<Arc<Keyring>>().capability().mint(&grant);
        Ok((grant, text))
    }

    /// Revokes a capability token: from the answer on it holds for nothing. Says when.
    pub async fn revoke_capability(
        &self,
        caller: &FactCaller,
        no: TokenNo,
        reason: Option<Arc<str>>,
    ) -> Result<Millis, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let mut entry = self.audit_entry(audit::TOKEN_REVOKED, Some(tenant), &no.id());
        entry.reason.clone_from(&reason);
        let command = RevokeToken { tenant: tenant.clone(), by: principal.clone(), no, reason };
        self.submit_fact_change(tenant, command, entry).await
    }

    /// What is kept of the tenant's capability tokens, oldest first, from after one on; for admins.
    pub fn capabilities(
        &self,
        caller: &FactCaller,
        after: Option<TokenNo>,
        limit: usize,
    ) -> Result<(Vec<TokenRecord>, bool), FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        if !principal.is_admin || !principal.reads {
            return Err(FactRejection::NotAdmin.into());
        }
        let reader = self.partition(tenant).state.reader();
        let from = keys::token(tenant, TokenNo(after.map_or(0, |no| no.0 + 1)));
        let to = keys::token(tenant, TokenNo(u64::MAX));
        let limit = limit.clamp(1, FACTS_PAGE_MAX);
        let mut found = Vec::new();
        for (key, value) in reader.range(&from, &to, limit + 1).map_err(Damaged::from)? {
            let parsed = keys::parse_token(&key);
            let (_, no) = parsed.ok_or_else(|| Damaged::new("the key of a token is damaged"))?;
            found.push(decode_token(tenant, no, &value).map_err(damaged)?);
        }
        let has_more = found.len() > limit;
        found.truncate(limit);
        Ok((found, has_more))
    }

    async fn submit_fact_change<C: Command<App, Rejection = FactRejection>>(
        &self,
        tenant: &Tenant,
        command: C,
        entry: AuditEntry,
    ) -> Result<C::Answer, FactError> {
        let describe = audit::describe_nothing::<C::Answer>;
        self.submit(tenant, &Audited { command, entry, describe }).await
    }

    /// Subscribes the caller, unless they are. `token` is the one that they have shown; without one,
    /// that which they hold.
    pub async fn subscribe_to_facts(
        &self,
        caller: &FactCaller,
        wanted: Wanted,
        token: Option<&str>,
    ) -> Result<CreatedSubscription, FactError> {
        let FactCaller { tenant, principal, key } = caller;
        let token = token.map(|text| self.shown_capability(caller, text)).transpose()?;
        let hash = self.hash_of_caller(caller)?;
        let mut drawn = [0; 10];
        self.entropy().fill(&mut drawn);
        let name: Arc<str> = uuid_v7(self.clock().wall(), drawn).into();
        let mut entry = self.audit_entry(audit::SUBSCRIPTION_CREATED, Some(tenant), &name);
        entry.reason = Some(audit::describe_subscription(&wanted).into());
        let command = CreateSubscription {
            tenant: tenant.clone(),
            by: principal.clone(),
            key: (key.clone(), hash),
            wanted,
            token,
            name,
        };
        let Subscribed { hook, is_new } = self.submit_fact_change(tenant, command, entry).await?;
        let reader = self.partition(tenant).state.reader();
        Ok(CreatedSubscription { view: SubscriptionView::of(&reader, &hook)?, is_new })
    }

    /// The capability token that a caller has shown, if it is theirs.
    fn shown_capability(&self, caller: &FactCaller, text: &str) -> Result<TokenNo, FactError> {
        let grant = self.extension::<Arc<Keyring>>().capability().verify(text);
        let grant = grant.map_err(FactRejection::from)?;
        let FactCaller { tenant, principal, .. } = caller;
        if grant.tenant != *tenant || grant.subject != principal.entity {
            return Err(FactRejection::from(CapabilityError::Invalid).into());
        }
        Ok(grant.no)
    }

    /// What is kept of a caller's key where it can be looked at again with each delivery.
    fn hash_of_caller(&self, caller: &FactCaller) -> Result<Option<KeyHash>, FactError> {
        match caller.key.as_deref() {
            None => Ok(None),
            Some(BOOTSTRAP_KEY_ID) => Err(FactRejection::KeyElsewhere.into()),
            Some(id) => match self.key_hash(&caller.tenant, id) {
                Some(hash) => Ok(Some(hash)),
                None if self.key(id).is_some() => Err(FactRejection::KeyElsewhere.into()),
                None => Err(FactRejection::KeyRevoked.into()),
            },
        }
    }

    /// A subscription of the caller's, or of anybody in the tenant for its admins.
    pub fn fact_subscription(
        &self,
        caller: &FactCaller,
        id: &str,
    ) -> Result<SubscriptionView, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let reader = self.partition(tenant).state.reader();
        let view = view(&reader, tenant, &id.into())?;
        let is_theirs = |view: &SubscriptionView| {
            view.spec.subscriber == principal.entity || (principal.is_admin && principal.reads)
        };
        view.filter(is_theirs).ok_or_else(|| FactRejection::SubscriptionNotFound.into())
    }

    /// The caller's subscriptions, newest first, cancelled ones too, from after one on.
    pub fn fact_subscriptions(
        &self,
        caller: &FactCaller,
        after: Option<HookId>,
        limit: usize,
    ) -> Result<SubscriptionPage, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let limit = limit.clamp(1, FACTS_PAGE_MAX);
        let than = after.unwrap_or(HookId(u64::MAX));
        let shared = self.partition(tenant);
        let (mut found, total) = {
            let core = shared.lock();
            let index = core.index.of::<SubscriptionIndex>();
            let found = index.older(tenant, &principal.entity, than, limit + 1);
            (found, index.count(tenant, &principal.entity))
        };
        let reader = shared.state.reader();
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| has_more).map(|(id, _)| *id);
        let mut subscriptions = Vec::new();
        for (_, name) in found {
            // What is decided but not durable yet is not shown.
            subscriptions.extend(view(&reader, tenant, &name)?);
        }
        Ok(SubscriptionPage { subscriptions, total, next })
    }

    /// Ends a subscription of the caller's.
    pub async fn delete_fact_subscription(
        &self,
        caller: &FactCaller,
        id: &str,
    ) -> Result<(), FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let entry = self.audit_entry(audit::SUBSCRIPTION_DELETED, Some(tenant), id);
        let by = principal.entity.clone();
        let command = DeleteSubscription { tenant: tenant.clone(), by, name: id.into() };
        self.submit_fact_change(tenant, command, entry).await
    }

    /// The events of a subscription of the caller's once more. If its access was revoked, it is
    /// cancelled, and that is all that is shown.
    pub async fn replay_facts(
        &self,
        caller: &FactCaller,
        id: &str,
        after: Option<String>,
        limit: usize,
        window_s: u64,
    ) -> Result<ReplayPage, FactError> {
        let FactCaller { tenant, principal, .. } = caller;
        let work = u64::try_from(limit.min(REPLAY_PAGE_MAX) / 16).unwrap_or(0);
        self.fairness().request(tenant, fairness::TAKEN_IN * (1 + work));
        let reader = self.partition(tenant).state.reader();
        let found = view(&reader, tenant, &id.into())?;
        let found = found.filter(|view| view.spec.subscriber == principal.entity);
        let found = found.ok_or(FactRejection::SubscriptionNotFound)?;
        let now = self.clock().now();
        if found.cancelled.is_some() {
            return ReplayPage::of_cancelled(&found, after.as_deref(), now, window_s);
        }
        let hook = (&reader).read(&keys::hook(FACE, tenant, id), record::decode_hook)?;
        let hook = Arc::new(hook.ok_or(FactRejection::SubscriptionNotFound)?);
        let number = hook.id;
        let run = ReplayRun { reader, hook, after: after.clone(), limit, window_s, now };
        match task::blocking(move || run.read()).await? {
            Replay::Page(page) => Ok(page),
            Replay::Revoked(_) => {
                let command = CancelSubscription { hook: number };
                self.submit(tenant, &command).await.map_err(without_rejection)?;
                let found = view(&self.partition(tenant).state.reader(), tenant, &id.into())?;
                let found = found.ok_or(FactRejection::SubscriptionNotFound)?;
                ReplayPage::of_cancelled(&found, after.as_deref(), now, window_s)
            }
        }
    }

    /// What is decided about a subscription now, and by which check: of what is in its own garden, if
    /// it is for one, else of what is in none.
    pub fn fact_ruling(&self, caller: &FactCaller, id: &str) -> Result<Option<Ruling>, FactError> {
        let view = self.fact_subscription(caller, id)?;
        let tenant = &caller.tenant;
        let shared = self.partition(tenant);
        let hook = shared.lock().index.of::<HookIndex>().of_tenant(FACE, tenant, id).cloned();
        let Some(hook) = hook.filter(|_| view.cancelled.is_none()) else { return Ok(None) };
        let (reader, spec) = (shared.state.reader(), super::face::spec_of(&hook)?);
        let (mut look, now) = (&reader, self.clock().now());
        match super::gate::ask(&mut look, &hook, &spec, spec.spec.garden, now) {
            Ok(ruling) => Ok(Some(ruling)),
            Err(_) => Err(Damaged::new("what a subscription rests on cannot be read").into()),
        }
    }
}

/// A subscription as it became durable last, cancelled or not.
fn view(
    reader: &Reader,
    tenant: &Tenant,
    id: &Arc<str>,
) -> Result<Option<SubscriptionView>, Damaged> {
    let mut look = reader;
    match look.read(&keys::hook(FACE, tenant, id), record::decode_hook)? {
        Some(hook) => SubscriptionView::of(reader, &hook).map(Some),
        None => SubscriptionView::cancelled(reader, tenant, id),
    }
}

fn without_rejection(
    error: reveille_kernel::error::Error<reveille_kernel::error::Never>,
) -> FactError {
    use reveille_kernel::error::Error;
    match error {
        Error::Rejected(never) => match never {},
        Error::Unavailable(why) => Error::Unavailable(why),
        Error::Damaged(why) => Error::Damaged(why),
    }
}
