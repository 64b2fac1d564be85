//! What the faces may ask about subscriptions and consumers.

use std::sync::Arc;

use reveille_core::consumer::{Ack, ClaimedWake, Dialect, Rejected};
use reveille_core::key_range::{above, after_prefix};
use reveille_core::pattern::Pattern;
use reveille_core::signature::Ed25519Key;
use reveille_core::stream::append::Append;
use reveille_core::subscription::{Subscription, SubscriptionId, SubscriptionSpec};
use reveille_core::token::{Claims, TokenKind};
use reveille_core::trace::Trace;
use reveille_core::{StreamPath, Tenant};
use reveille_deliver::destination::{Destination, DestinationError};
use reveille_schema::keys::{self, ConsumerKey, Meta};
use reveille_schema::record::{self, ConsumerRecord, LinkRecord};

use crate::command::callback::{Report, Standing};
use crate::command::lease::{Lease, LeaseRequest};
use crate::command::{Answer, Command};
use crate::decide::run;
use crate::encoder::NotifiedStream;
use crate::engine::Engine;
use crate::failure::{Failure, Refused};
use crate::limits::LIST_PAGE_MAX;
use crate::{outbound, reading};

/// A token that has less than this left is replaced.
const RENEW_WITHIN_MS: u64 = 300_000;
/// Random bytes of a webhook secret.
const SECRET_BYTES: usize = 32;

/// A callback as it comes in.
#[derive(Debug, Clone, Default)]
pub struct CallbackRequest {
    /// The subscription that the consumer's name begins with.
    pub subscription: String,
    /// The stream that it goes on with.
    pub path: String,
    /// The token that came with it.
    pub token: String,
    /// The wake it speaks for.
    pub epoch: u64,
    /// The wake it claims.
    pub wake_id: Option<ClaimedWake>,
    /// How far it has come.
    pub acks: Vec<Ack>,
    /// Streams to follow from now on.
    pub subscribe: Vec<StreamPath>,
    /// Streams to follow no longer.
    pub unsubscribe: Vec<StreamPath>,
    /// Whether it has finished.
    pub done: bool,
    /// What to append in the same step.
    pub appends: Vec<(StreamPath, Append)>,
    /// The trace that it is a part of.
    pub trace: Option<Trace>,
}

/// A callback that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackError {
    pub failure: Failure,
    /// A token to go on with, for those who may.
    pub token: Option<String>,
}

impl CallbackError {
    fn plain(failure: impl Into<Failure>) -> CallbackError {
        CallbackError { failure: failure.into(), token: None }
    }
}

impl Engine {
    /// Whether a webhook may go to this address.
    pub fn check_destination(&self, url: &str) -> Result<(), DestinationError> {
        Destination::parse(url, self.rules()).map(drop)
    }

    /// Makes a subscription, or finds that it is there as asked for.
    pub async fn subscribe(
        &self,
        tenant: &Tenant,
        spec: SubscriptionSpec,
    ) -> Result<(Arc<Subscription>, bool), Failure> {
        let secret = (spec.dialect == Dialect::Webhooks).then(|| self.fresh_secret());
        let command = Command::Subscribe { tenant: tenant.clone(), spec, secret };
        match run(self.partition(tenant), self.clock().as_ref(), &command).await? {
            Answer::Subscribed { subscription, new } => {
                if new {
                    let spec = &subscription.spec;
                    let pattern = spec.pattern.as_ref().map(Pattern::as_str);
                    tracing::info!(subscription = &*spec.name, pattern, "a subscription was made");
                }
                Ok((subscription, new))
            }
            _ => unreachable!("a subscription is answered as one"),
        }
    }

    /// Ends a subscription; one that is not there has ended.
    pub async fn unsubscribe(
        &self,
        tenant: &Tenant,
        dialect: Dialect,
        name: &str,
    ) -> Result<(), Failure> {
        let there = self.subscription(tenant, dialect, name)?.is_some();
        let command = Command::Unsubscribe { tenant: tenant.clone(), dialect, name: name.into() };
        run(self.partition(tenant), self.clock().as_ref(), &command).await?;
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
    ) -> Result<(), Failure> {
        let (tenant, name) = (tenant.clone(), name.into());
        let command = Command::EditStreams { tenant: tenant.clone(), name, add, remove };
        run(self.partition(&tenant), self.clock().as_ref(), &command).await?;
        Ok(())
    }

    /// The subscription of this name.
    pub fn subscription(
        &self,
        tenant: &Tenant,
        dialect: Dialect,
        name: &str,
    ) -> Result<Option<Subscription>, Failure> {
        let reader = self.partition(tenant).state.reader();
        let key = keys::subscription(tenant, dialect, name);
        let value = reader.get(&key).map_err(reading::damaged)?;
        value.map(|value| decode(&value)).transpose()
    }

    /// All subscriptions of a tenant in one dialect, by name.
    pub fn subscriptions(
        &self,
        tenant: &Tenant,
        dialect: Dialect,
    ) -> Result<Vec<Subscription>, Failure> {
        let reader = self.partition(tenant).state.reader();
        let mut from = keys::subscription(tenant, dialect, "");
        let to = after_prefix(&from);
        let mut all = Vec::new();
        loop {
            let pairs = reader.range(&from, &to, LIST_PAGE_MAX).map_err(reading::damaged)?;
            let full = pairs.len() == LIST_PAGE_MAX;
            for (key, value) in pairs {
                all.push(decode(&value)?);
                from = above(&key);
            }
            if !full {
                return Ok(all);
            }
        }
    }

    /// By which right a consumer reports; whether the token has expired is not asked yet.
    pub fn caller(&self, called: &CallbackRequest) -> Result<Claims, CallbackError> {
        let claims = self.keyring().verify(&called.token);
        let claims = claims.map_err(|_| CallbackError::plain(Refused::TokenInvalid))?;
        let name = format!("{}:{}", called.subscription, called.path);
        if claims.kind != TokenKind::Callback || *claims.consumer != *name {
            return Err(CallbackError::plain(Refused::TokenInvalid));
        }
        Ok(claims)
    }

    /// A consumer reports. Whoever has no good token learns nothing, not even who exists.
    pub async fn report(
        &self,
        called: CallbackRequest,
    ) -> Result<(Standing, String), CallbackError> {
        let claims = self.caller(&called)?;
        let path = StreamPath::parse(&called.path);
        let path = path.map_err(|_| CallbackError::plain(Refused::Consumer(Rejected::Gone)))?;
        let subscription = SubscriptionId(claims.subscription);
        let report = Report {
            consumer: ConsumerKey { subscription, path: Some(path) },
            claims: claims.clone(),
            epoch: called.epoch,
            wake_id: called.wake_id,
            acks: called.acks,
            subscribe: called.subscribe,
            unsubscribe: called.unsubscribe,
            done: called.done,
            appends: called.appends,
        };
        let shared = self.partition(&claims.tenant);
        let command = Command::Report(Box::new(report)).within(called.trace);
        match run(shared, self.clock().as_ref(), &command).await {
            Ok(Answer::Reported(standing)) if standing.gone => {
                Err(CallbackError::plain(Refused::Consumer(Rejected::Gone)))
            }
            Ok(Answer::Reported(standing)) => {
                let fresh = standing.epoch == claims.epoch
                    && !claims.nears_expiry(self.clock().now(), RENEW_WITHIN_MS);
                let token = if fresh { called.token } else { self.renew(&claims, standing.epoch) };
                Ok((*standing, token))
            }
            Ok(_) => unreachable!("a report is answered as one"),
            Err(failure) => {
                let epoch = current_epoch(&failure, &claims);
                Err(CallbackError { token: epoch.map(|it| self.renew(&claims, it)), failure })
            }
        }
    }

    fn renew(&self, claims: &Claims, epoch: u64) -> String {
        let expires_at = self.clock().now() + self.timings().token_ttl_ms;
        self.keyring().renew(&Claims { epoch, expires_at, ..claims.clone() })
    }

    /// A worker asks for work; with it come a token and the streams with something to do.
    pub async fn claim(
        &self,
        tenant: &Tenant,
        name: &str,
        worker: &str,
    ) -> Result<(Lease, String, Vec<NotifiedStream>), Failure> {
        let request = LeaseRequest::Claim { worker: worker.into() };
        let Answer::Leased(lease) = self.lease(tenant, name, request).await? else {
            unreachable!("a claim is answered as one");
        };
        let subscription = self.subscription(tenant, Dialect::Leases, name)?;
        let subscription = subscription.ok_or(Refused::NotFound)?;
        let reader = self.partition(tenant).state.reader();
        let key = ConsumerKey { subscription: subscription.id, path: None };
        let record = outbound::record(&reader, &key)?.ok_or(Refused::NotFound)?;
        let streams = outbound::streams(&reader, &subscription, &record)?;
        let expires_at = self.clock().now() + self.timings().token_ttl_ms;
        let token = self.keyring().mint(&subscription, None, None, lease.generation, expires_at);
        Ok((*lease, token, streams))
    }

    /// What a lease's token says, if it is one for this subscription.
    pub fn lease_claims(&self, tenant: Option<&Tenant>, name: &str, token: &str) -> Option<Claims> {
        let claims = self.keyring().verify(token).ok()?;
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
    ) -> Result<bool, Failure> {
        let (tenant, name) = (claims.tenant.clone(), claims.consumer.clone());
        let request = LeaseRequest::Report { claims, generation, wake_id, acks, done };
        match self.lease(&tenant, &name, request).await? {
            Answer::Reported(standing) => Ok(standing.next_wake),
            _ => unreachable!("a report is answered as one"),
        }
    }

    /// A worker gives its work back.
    pub async fn release(
        &self,
        claims: Claims,
        generation: u64,
        wake_id: ClaimedWake,
    ) -> Result<(), Failure> {
        let (tenant, name) = (claims.tenant.clone(), claims.consumer.clone());
        let request = LeaseRequest::Release { claims, generation, wake_id };
        self.lease(&tenant, &name, request).await?;
        Ok(())
    }

    async fn lease(
        &self,
        tenant: &Tenant,
        name: &str,
        request: LeaseRequest,
    ) -> Result<Answer, Failure> {
        let command = Command::Lease { tenant: tenant.clone(), name: name.into(), request };
        run(self.partition(tenant), self.clock().as_ref(), &command).await
    }

    /// The streams that a subscription is for: those named, and those that grew since it began; at
    /// most so many.
    pub fn links(
        &self,
        subscription: &Subscription,
        limit: usize,
    ) -> Result<Vec<(StreamPath, LinkRecord)>, Failure> {
        let reader = self.partition(&subscription.tenant).state.reader();
        let (from, to) = keys::links(subscription.id);
        let pairs = reader.range(&from, &to, limit).map_err(reading::damaged)?;
        let mut links = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let Some(path) = keys::parse_linked(&key) else { continue };
            let link =
                record::decode_link(&value).map_err(|error| Failure::Damaged(error.to_string()))?;
            links.push((path, link));
        }
        Ok(links)
    }

    /// The consumer of a subscription, as it is kept; `None` while it never did anything.
    pub fn lease_consumer(
        &self,
        subscription: &Subscription,
    ) -> Result<Option<ConsumerRecord>, Failure> {
        let reader = self.partition(&subscription.tenant).state.reader();
        let key = ConsumerKey { subscription: subscription.id, path: None };
        outbound::record(&reader, &key)
    }

    /// The keys that webhooks may be signed with, as the world may know them.
    pub fn published_keys(&self) -> Vec<Ed25519Key> {
        self.keyring().published(self.clock().now())
    }

    /// Has a new key sign webhooks, and publishes the old one for a while longer.
    pub async fn rotate_signing_key(&self, overlap_ms: u64) -> Result<Ed25519Key, Failure> {
        let shared = self.first_partition();
        let (expected, value) = self.keyring().rotated(self.clock().now(), overlap_ms);
        let command = Command::Install { name: Meta::SigningKeys, value, expected: Some(expected) };
        run(shared, self.clock().as_ref(), &command).await?;
        let stored = shared.state.reader().get(&keys::meta(Meta::SigningKeys));
        let stored = stored.map_err(reading::damaged)?.unwrap_or_default();
        self.keyring().adopt(stored).map_err(Failure::Damaged)?;
        Ok(self.keyring().signing())
    }

    fn fresh_secret(&self) -> Arc<str> {
        let mut bytes = [0; SECRET_BYTES];
        self.entropy().fill(&mut bytes);
        let hex = bytes.iter().map(|byte| format!("{byte:02x}"));
        format!("whsec_{}", hex.collect::<String>()).into()
    }
}

fn decode(value: &[u8]) -> Result<Subscription, Failure> {
    record::decode_subscription(value).map_err(|error| Failure::Damaged(error.to_string()))
}

/// The wake that a refused caller may be given a token for.
fn current_epoch(failure: &Failure, claims: &Claims) -> Option<u64> {
    match failure {
        Failure::Refused(Refused::Consumer(Rejected::StaleEpoch { current, .. })) => Some(*current),
        Failure::Refused(Refused::TokenExpired { epoch }) => Some(*epoch),
        Failure::Refused(
            Refused::Consumer(
                Rejected::AlreadyClaimed
                | Rejected::Overtaken { .. }
                | Rejected::InvalidOffset { .. },
            )
            | Refused::Append { .. },
        ) => Some(claims.epoch),
        _ => None,
    }
}
