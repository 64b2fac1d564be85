//! What the faces may ask about subscriptions and consumers.

use std::sync::Arc;

use reveille_core::audit::{AuditEntry, action};
use reveille_core::consumer::{Ack, ClaimedWake, Dialect, Rejected};
use reveille_core::key::Right;
use reveille_core::key_range::{above, after_prefix};
use reveille_core::pattern::Pattern;
use reveille_core::secret::SealedSecret;
use reveille_core::subscription::{
    NewSecret, Subscription, SubscriptionChange, SubscriptionId, SubscriptionSpec,
};
use reveille_core::token::{Claims, TokenKind};
use reveille_core::trace::Trace;
use reveille_core::{StreamPath, Tenant};
use reveille_deliver::destination::{Destination, DestinationError};
use reveille_kernel::error::{Damaged, Error, Never};
use reveille_kernel::fairness;
use reveille_schema::keys::{self, ConsumerKey};
use reveille_schema::record::{self, ConsumerRecord, LinkRecord};

use super::audit;
use super::callback::{ApplyCallback, CallbackBody, CallbackReceipt};
use super::error::{WakeError, WakeRejection};
use super::lease::{ClaimLease, Lease, ReleaseLease, RenewLease};
use super::operate::{ConsumerOrder, OperateConsumer};
use super::send;
use super::subscribe::{
    ChangeSubscription, CreateSubscription, DeleteSubscription, EditSubscriptionStreams,
};
use crate::app::Txn;
use crate::audit::Audited;
use crate::encoder::NotifiedStream;
use crate::engine::Engine;
use crate::keyring::Keyring;
use crate::limits::LIST_SCAN_MAX;
use crate::records::{ReadRecord, Scan, TakeEntry, damaged};

/// A token that has less than this left is replaced.
const RENEW_WITHIN_MS: u64 = 300_000;
/// Random bytes of a webhook secret.
const SECRET_BYTES: usize = 32;

/// Streams of a report that cost about as much as an append.
const STREAMS_PER_APPEND: usize = 16;

/// A callback as it comes in.
#[derive(Debug, Clone, Default)]
pub struct CallbackRequest {
    /// The subscription that the consumer's name begins with.
    pub subscription: String,
    /// The stream that it goes on with.
    pub path: String,
    /// The token that came with it.
    pub token: String,
    pub body: CallbackBody,
    /// The trace that it is a part of.
    pub trace: Option<Trace>,
}

/// A callback that was heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackAnswer {
    pub receipt: CallbackReceipt,
    /// A token to go on with, for the same wake.
    pub token: String,
    /// Streams that it asked for and does not follow: the subscription's creator may not read them.
    pub unreadable: Vec<StreamPath>,
}

/// A callback that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackError {
    pub error: WakeError,
    /// A token to go on with, for those who may.
    pub token: Option<String>,
}

impl CallbackError {
    fn plain(rejection: WakeRejection) -> CallbackError {
        CallbackError { error: Error::Rejected(rejection), token: None }
    }
}

impl Engine {
    /// Whether a webhook may go to this address.
    pub fn check_destination(&self, url: &str) -> Result<(), DestinationError> {
        Destination::parse(url, self.rules()).map(drop)
    }

    /// Seals what is to sign requests to a tenant's endpoint.
    pub fn seal_webhook_secret(&self, tenant: &Tenant, secret: &str) -> SealedSecret {
        self.extension::<Arc<Keyring>>().seal_webhook_secret(tenant, secret)
    }

    /// Makes a subscription, or finds that it is there as asked for. A new one may have a secret,
    /// which can be read now and never again.
    pub async fn subscribe(
        &self,
        tenant: &Tenant,
        spec: SubscriptionSpec,
        created_by: Option<Arc<str>>,
    ) -> Result<(Arc<Subscription>, Option<String>, bool), WakeError> {
        let secret = (spec.dialect == Dialect::Webhooks).then(|| self.fresh_secret());
        let sealed = secret.as_ref().map(|secret| self.seal_webhook_secret(tenant, secret));
        let tenant_of_it = tenant.clone();
        let command = CreateSubscription { tenant: tenant_of_it, spec, secret: sealed, created_by };
        let created = self.submit(tenant, &command).await?;
        if created.is_new {
            let spec = &created.subscription.spec;
            let pattern = spec.pattern.as_ref().map(Pattern::as_str);
            tracing::info!(subscription = &*spec.name, pattern, "a subscription was made");
        }
        let secret = secret.filter(|_| created.is_new);
        Ok((created.subscription, secret, created.is_new))
    }

    /// Changes a subscription in place. If its secret is replaced, for `overlap_ms` both sign; the
    /// new one can be read now and never again.
    pub async fn change_subscription(
        &self,
        tenant: &Tenant,
        name: &str,
        mut change: SubscriptionChange,
        overlap_ms: Option<u64>,
    ) -> Result<(Arc<Subscription>, Option<String>), WakeError> {
        let secret = overlap_ms.map(|_| self.fresh_secret());
        change.secret = secret.as_ref().zip(overlap_ms).map(|(secret, overlap_ms)| NewSecret {
            sealed: self.seal_webhook_secret(tenant, secret),
            overlap_ms,
        });
        let command = ChangeSubscription { tenant: tenant.clone(), name: name.into(), change };
        let (paused, rotated) = (command.change.paused, secret.is_some());
        let entry = self.audit_entry(action::SUBSCRIPTION_UPDATED, Some(tenant), name);
        let describe = audit::describe_change;
        let changed = self.submit(tenant, &Audited { command, entry, describe }).await?;
        tracing::info!(subscription = name, paused, rotated, "a subscription was changed");
        Ok((changed, secret))
    }

    /// Ends a subscription; one that is not there has ended.
    pub async fn unsubscribe(
        &self,
        tenant: &Tenant,
        dialect: Dialect,
        name: &str,
    ) -> Result<(), Error<Never>> {
        let there = self.subscription(tenant, dialect, name)?.is_some();
        let command = DeleteSubscription { tenant: tenant.clone(), dialect, name: name.into() };
        let entry = self.audit_entry(action::SUBSCRIPTION_DELETED, Some(tenant), name);
        let describe = move |txn: &Txn<'_>, (): &(), entry: &mut AuditEntry| {
            audit::describe_end(txn, dialect, entry);
        };
        self.submit(tenant, &Audited { command, entry, describe }).await?;
        if there {
            tracing::info!(subscription = name, "a subscription was ended");
        }
        Ok(())
    }

    /// Names streams that a subscription is for, or one that it is not for any more.
    pub async fn edit_streams(
        &self,
        tenant: &Tenant,
        name: &str,
        add: Vec<StreamPath>,
        remove: Option<StreamPath>,
    ) -> Result<(), WakeError> {
        let (tenant, name) = (tenant.clone(), name.into());
        let command = EditSubscriptionStreams { tenant: tenant.clone(), name, add, remove };
        self.submit(&tenant, &command).await
    }

    /// The subscription of this name.
    pub fn subscription(
        &self,
        tenant: &Tenant,
        dialect: Dialect,
        name: &str,
    ) -> Result<Option<Subscription>, Damaged> {
        let reader = self.partition(tenant).state.reader();
        let key = keys::subscription(tenant, dialect, name);
        (&reader).read(&key, record::decode_subscription)
    }

    /// The subscriptions of a tenant in one dialect by name, after one. Returns the last name that
    /// was taken if there may be more.
    pub fn subscriptions(
        &self,
        tenant: &Tenant,
        dialect: Dialect,
        after: Option<&str>,
        take: TakeEntry<'_, Subscription>,
    ) -> Result<Option<Arc<str>>, Damaged> {
        let reader = self.partition(tenant).state.reader();
        let first = keys::subscription(tenant, dialect, "");
        let to = after_prefix(&first);
        let from = after.map_or(first, |name| above(&keys::subscription(tenant, dialect, name)));
        let mut last = after.map(Arc::from);
        for (looks, pair) in Scan::new(&reader, from, to).enumerate() {
            let subscription = record::decode_subscription(&pair?.1).map_err(damaged)?;
            if looks >= LIST_SCAN_MAX || !take(&subscription) {
                return Ok(last);
            }
            last = Some(subscription.spec.name);
        }
        Ok(None)
    }

    /// By which right a consumer reports; whether the token has expired is not asked yet.
    pub fn caller(&self, request: &CallbackRequest) -> Result<Claims, CallbackError> {
        let claims = self.extension::<Arc<Keyring>>().verify(&request.token);
        let claims = claims.map_err(|_| CallbackError::plain(WakeRejection::TokenInvalid))?;
        let name = format!("{}:{}", request.subscription, request.path);
        if claims.kind != TokenKind::Callback || *claims.consumer != *name {
            return Err(CallbackError::plain(WakeRejection::TokenInvalid));
        }
        Ok(claims)
    }

    /// A consumer reports. Whoever has no good token learns nothing, not even who exists.
    pub async fn report(&self, request: CallbackRequest) -> Result<CallbackAnswer, CallbackError> {
        let claims = self.caller(&request)?;
        let mut body = request.body;
        let unreadable = self.take_unreadable(&claims, &request.subscription, &mut body)?;
        let gone = || CallbackError::plain(WakeRejection::Consumer(Rejected::Gone));
        let path = StreamPath::parse(&request.path).map_err(|_| gone())?;
        let subscription = SubscriptionId(claims.subscription);
        self.count_report(&claims.tenant, body.appends.len(), body.reads());
        let command = ApplyCallback {
            consumer: ConsumerKey { subscription, path: Some(path) },
            claims: claims.clone(),
            body,
            trace: request.trace,
        };
        match self.submit(&claims.tenant, &command).await {
            Ok(receipt) if receipt.gone => Err(gone()),
            Ok(receipt) => {
                let is_good = !claims.nears_expiry(self.clock().wall(), RENEW_WITHIN_MS);
                let token = if is_good { request.token } else { self.renew(&claims) };
                Ok(CallbackAnswer { receipt, token, unreadable })
            }
            Err(error) => {
                let token = may_go_on(&error).then(|| self.renew(&claims));
                Err(CallbackError { token, error })
            }
        }
    }

    /// A report is a request, and each append in it is another; looking at a stream is less.
    fn count_report(&self, tenant: &Tenant, appends: usize, streams: usize) {
        let work = u64::try_from(1 + appends + streams / STREAMS_PER_APPEND).unwrap_or(u64::MAX);
        self.fairness().request(tenant, work * fairness::TAKEN_IN);
    }

    /// Takes out of a report the streams that are not to be followed: of the server's own, those
    /// that whoever made or changed the subscription may not read.
    fn take_unreadable(
        &self,
        claims: &Claims,
        subscription: &str,
        body: &mut CallbackBody,
    ) -> Result<Vec<StreamPath>, CallbackError> {
        if !body.subscribe.iter().any(StreamPath::is_internal) {
            return Ok(Vec::new());
        }
        let known = self.subscription(&claims.tenant, Dialect::Webhooks, subscription);
        let known = known.map_err(|error| CallbackError { error: error.into(), token: None })?;
        // Of one that is not there nothing is followed; the decision says so.
        let Some(known) = known else { return Ok(Vec::new()) };
        // Whoever chose where it is told reads by it.
        let by = known.changed_by.as_deref().or(known.created_by.as_deref());
        let is_readable = |path: &StreamPath| {
            let right = Right::to_read(path.as_str());
            !path.is_internal() || self.may_creator(by, right)
        };
        let all = std::mem::take(&mut body.subscribe);
        let (readable, unreadable) = all.into_iter().partition(is_readable);
        body.subscribe = readable;
        Ok(unreadable)
    }

    /// A token that says the same for longer. It is for the wake that it was for: whoever is given
    /// it may be one who does not know that somebody else has taken over.
    fn renew(&self, claims: &Claims) -> String {
        let expires_at = self.clock().wall() + self.timings().token_ttl_ms;
        self.extension::<Arc<Keyring>>().renew(&Claims { expires_at, ..claims.clone() })
    }

    /// An operator does something to a consumer, the one for a stream or the only one, which has
    /// this name, and perhaps says why.
    pub async fn operate_consumer(
        &self,
        subscription: &Subscription,
        path: Option<&StreamPath>,
        order: ConsumerOrder,
        name: &str,
        reason: Option<Arc<str>>,
    ) -> Result<(), WakeError> {
        let tenant = subscription.tenant.clone();
        let action = match &order {
            ConsumerOrder::Wake { .. } => action::CONSUMER_WOKEN,
            ConsumerOrder::Seek { .. } => action::CONSUMER_SOUGHT,
            ConsumerOrder::Revive => action::CONSUMER_REVIVED,
        };
        let entry = AuditEntry { reason, ..self.audit_entry(action, Some(&tenant), name) };
        let (subscription, path) = (subscription.spec.name.clone(), path.cloned());
        let command = OperateConsumer { tenant: tenant.clone(), subscription, path, order };
        let describe = audit::describe_order;
        self.submit(&tenant, &Audited { command, entry, describe }).await.map(drop)
    }

    /// A worker asks for work; with it come a token and the streams with something to do.
    pub async fn claim(
        &self,
        tenant: &Tenant,
        name: &str,
        worker: &str,
    ) -> Result<(Lease, String, Vec<NotifiedStream>), WakeError> {
        let command =
            ClaimLease { tenant: tenant.clone(), name: name.into(), worker: worker.into() };
        let lease = self.submit(tenant, &command).await?;
        let subscription = self.subscription(tenant, Dialect::Leases, name)?;
        let subscription = subscription.ok_or(WakeRejection::NotFound)?;
        let reader = self.partition(tenant).state.reader();
        let key = ConsumerKey { subscription: subscription.id, path: None };
        let record = send::consumer_record(&reader, &key)?.ok_or(WakeRejection::NotFound)?;
        let streams = send::streams(&reader, &subscription, &record)?;
        let expires_at = self.clock().wall() + self.timings().token_ttl_ms;
        let token = self.extension::<Arc<Keyring>>().mint(
            &subscription,
            None,
            None,
            lease.generation,
            expires_at,
        );
        Ok((lease, token, streams))
    }

    /// What a lease's token says, if it is one for this subscription.
    pub fn lease_claims(&self, tenant: Option<&Tenant>, name: &str, token: &str) -> Option<Claims> {
        let claims = self.extension::<Arc<Keyring>>().verify(token).ok()?;
        let same = claims.kind == TokenKind::Lease && *claims.consumer == *name;
        let mine = tenant.is_none_or(|tenant| *tenant == claims.tenant);
        (same && mine).then_some(claims)
    }

    /// A worker reports progress. Says whether the next wake is already under way.
    pub async fn lease_report(
        &self,
        claims: Claims,
        generation: u64,
        wake_id: ClaimedWake,
        acks: Vec<Ack>,
        done: bool,
    ) -> Result<bool, WakeError> {
        let tenant = claims.tenant.clone();
        self.count_report(&tenant, 0, acks.len());
        self.submit(&tenant, &RenewLease { claims, generation, wake_id, acks, done }).await
    }

    /// A worker gives its work back.
    pub async fn release(
        &self,
        claims: Claims,
        generation: u64,
        wake_id: ClaimedWake,
    ) -> Result<(), WakeError> {
        let tenant = claims.tenant.clone();
        self.submit(&tenant, &ReleaseLease { claims, generation, wake_id }).await
    }

    /// The streams that a subscription is for: those named, and those that grew since it began; at
    /// most so many.
    pub fn links(
        &self,
        subscription: &Subscription,
        limit: usize,
    ) -> Result<Vec<(StreamPath, LinkRecord)>, Damaged> {
        let reader = self.partition(&subscription.tenant).state.reader();
        let (from, to) = keys::links(subscription.id);
        let pairs = reader.range(&from, &to, limit)?;
        let mut links = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let Some(path) = keys::parse_linked(&key) else { continue };
            let link = record::decode_link(&value).map_err(damaged)?;
            links.push((path, link));
        }
        Ok(links)
    }

    /// The consumer of a subscription, as it is kept; `None` while it never did anything.
    pub fn lease_consumer(
        &self,
        subscription: &Subscription,
    ) -> Result<Option<ConsumerRecord>, Damaged> {
        let reader = self.partition(&subscription.tenant).state.reader();
        let key = ConsumerKey { subscription: subscription.id, path: None };
        send::consumer_record(&reader, &key)
    }

    fn fresh_secret(&self) -> String {
        let mut bytes = [0; SECRET_BYTES];
        self.entropy().fill(&mut bytes);
        let hex = bytes.iter().map(|byte| format!("{byte:02x}"));
        format!("whsec_{}", hex.collect::<String>())
    }
}

/// Whether a refused caller is given a token.
fn may_go_on(error: &WakeError) -> bool {
    let Error::Rejected(rejection) = error else { return false };
    matches!(
        rejection,
        WakeRejection::TokenExpired
            | WakeRejection::Append { .. }
            | WakeRejection::Consumer(
                Rejected::StaleEpoch { .. }
                    | Rejected::AlreadyClaimed
                    | Rejected::Overtaken { .. }
                    | Rejected::InvalidOffset { .. }
            )
    )
}
