//! Subscriptions to facts: what may be asked for, which two are the same, and which rules follow.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest;

use super::access::CancelReason;
use super::garden::GardenNo;
use super::limits::{FACT_IDEMPOTENCY_KEY_CHARS_MAX, FACT_WEBHOOK_URL_BYTES_MAX};
use super::name::{EntityUri, ScopeId};
use super::target::{Target, TargetError};
use super::token::TokenNo;
use crate::delivery::hook::HookId;
use crate::delivery::id::EventNo;
use crate::delivery::policy::{Backoff, Jitter, Policy, Transport};
use crate::time::Millis;

/// What happens to facts and cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FactEventKind {
    Assert,
    Retract,
    Contradiction,
    Card,
    /// A subscription was cancelled. Nobody subscribes to it, and it is never sent.
    Cancelled,
}

impl FactEventKind {
    /// Those that one can subscribe to.
    pub const SUBSCRIBABLE: [FactEventKind; 4] = [
        FactEventKind::Assert,
        FactEventKind::Retract,
        FactEventKind::Contradiction,
        FactEventKind::Card,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            FactEventKind::Assert => "fact_assert",
            FactEventKind::Retract => "fact_retract",
            FactEventKind::Contradiction => "contradiction_detected",
            FactEventKind::Card => "card_refreshed",
            FactEventKind::Cancelled => "subscription_cancelled_access_revoked",
        }
    }

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<FactEventKind> {
        let all = FactEventKind::SUBSCRIBABLE.into_iter().chain([FactEventKind::Cancelled]);
        all.into_iter().find(|kind| kind.as_str() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The kinds of events that somebody wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventFilter(u8);

impl Default for EventFilter {
    fn default() -> EventFilter {
        EventFilter(FactEventKind::Assert.bit() | FactEventKind::Retract.bit())
    }
}

impl EventFilter {
    /// Those of these names, in any order.
    pub fn parse<'a>(
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<EventFilter, SubscriptionError> {
        let mut filter = EventFilter(0);
        for name in names {
            let kind = FactEventKind::parse(name).filter(|kind| *kind != FactEventKind::Cancelled);
            filter.0 |= kind.ok_or(SubscriptionError::EventFilter)?.bit();
        }
        if filter.0 == 0 { Err(SubscriptionError::EventFilter) } else { Ok(filter) }
    }

    pub fn contains(self, kind: FactEventKind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// Them, always in the same order.
    pub fn kinds(self) -> impl Iterator<Item = FactEventKind> {
        FactEventKind::SUBSCRIBABLE.into_iter().filter(move |kind| self.contains(*kind))
    }

    /// As it is stored.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// One that was stored.
    pub fn from_bits(bits: u8) -> Option<EventFilter> {
        let all = FactEventKind::SUBSCRIBABLE.iter().fold(0, |all, kind| all | kind.bit());
        (bits != 0 && bits & !all == 0).then_some(EventFilter(bits))
    }
}

/// How a subscriber is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// By a request to an endpoint.
    Webhook(Arc<str>),
    /// By an append to the stream of an agent, which wakes it.
    Wake(Arc<str>),
}

impl Channel {
    pub fn on_change(&self) -> &'static str {
        match self {
            Channel::Webhook(_) => "webhook",
            Channel::Wake(_) => "wake",
        }
    }
}

/// A subscription as somebody asks for it, before anything of it is judged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubscriptionRequest {
    pub target: Option<String>,
    pub on_change: Option<String>,
    pub webhook_url: Option<String>,
    pub wake_agent_id: Option<String>,
    pub event_filter: Option<Vec<String>>,
    pub idempotency_key: Option<String>,
    pub scope: Option<String>,
}

/// What a server lets subscriptions be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriptionRules {
    /// Whether agents can be woken.
    pub wakes: bool,
    /// Whether endpoints on this machine may be called without TLS.
    pub http_loopback: bool,
}

/// What somebody wants to be told, judged. It says nothing of who they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    pub target: Target,
    pub channel: Channel,
    pub filter: EventFilter,
    /// What the events are limited to.
    pub scope: ScopeId,
    pub idempotency_key: Option<Arc<str>>,
}

/// A subscription, as its hook's spec says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactHookSpec {
    pub wanted: Wanted,
    /// Whose it is.
    pub subscriber: EntityUri,
    /// By which right.
    pub token: TokenNo,
    /// The incarnation of the garden that it is for, if it is for one.
    pub garden: Option<GardenNo>,
}

/// A subscription that was cancelled because its access was revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancelled {
    pub at: Millis,
    pub why: CancelReason,
    /// The event of which it is told to nobody.
    pub event: EventNo,
}

/// By what a subscription is found again when it is asked for twice, among those of its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dedup {
    /// The subscriber's own key decides, whatever else is asked for.
    Key(EntityUri, Arc<str>),
    /// Everything that is asked for, with who asks.
    Structure([u8; 32]),
}

/// Why there is no such subscription. The status of all of them is 422.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubscriptionError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("`on_change` is \"webhook\" or \"wake\"")]
    OnChange,
    #[error(
        "`webhook_url` is an https URL with a host, without a user and a fragment, at most \
         {FACT_WEBHOOK_URL_BYTES_MAX} bytes long"
    )]
    WebhookUrl,
    #[error(
        "with `on_change: \"wake\"`, `wake_agent_id` is the UUID of an agent, and there is no `webhook_url`"
    )]
    WakeAgent,
    #[error("with `on_change: \"webhook\"` there is no `wake_agent_id`; leave it out")]
    WakeAgentUnused,
    #[error(
        "`event_filter` names at least one of \"fact_assert\", \"fact_retract\", \
         \"contradiction_detected\" and \"card_refreshed\", and nothing else"
    )]
    EventFilter,
    #[error("`idempotency_key` is 1 to {FACT_IDEMPOTENCY_KEY_CHARS_MAX} printable characters")]
    IdempotencyKey,
    #[error("`scope` is a scope id; with a `scope:` target it is the same as that, or is left out")]
    ScopeMismatch,
    #[error(
        "this server cannot wake agents; start it with --wake-stream-template, or subscribe with \
         `on_change: \"webhook\"`"
    )]
    WakeNotSupported,
}

impl SubscriptionError {
    /// The word that the world knows it by.
    pub fn code(self) -> &'static str {
        match self {
            SubscriptionError::Target(_) => "invalid_target",
            SubscriptionError::OnChange => "invalid_on_change",
            SubscriptionError::WebhookUrl => "invalid_webhook_url",
            SubscriptionError::WakeAgent | SubscriptionError::WakeAgentUnused => {
                "invalid_wake_agent_id"
            }
            SubscriptionError::EventFilter => "invalid_event_filter",
            SubscriptionError::IdempotencyKey => "invalid_idempotency_key",
            SubscriptionError::ScopeMismatch => "scope_mismatch",
            SubscriptionError::WakeNotSupported => "wake_not_supported",
        }
    }
}

impl SubscriptionRequest {
    /// Judges what is asked for: its shape first, then whether this server can do it.
    pub fn judge(&self, rules: SubscriptionRules) -> Result<Wanted, SubscriptionError> {
        let target = Target::parse(self.target.as_deref().unwrap_or_default())?;
        let channel = self.channel(rules)?;
        let filter = match &self.event_filter {
            Some(names) => EventFilter::parse(names.iter().map(String::as_str))?,
            None => EventFilter::default(),
        };
        let idempotency_key = match &self.idempotency_key {
            Some(key) if !is_key(key) => return Err(SubscriptionError::IdempotencyKey),
            key => key.as_deref().map(Arc::from),
        };
        let scope = match &self.scope {
            Some(scope) => {
                Some(ScopeId::parse(scope).map_err(|_| SubscriptionError::ScopeMismatch)?)
            }
            None => None,
        };
        let scope = match (&target, scope) {
            (Target::Scope(own), Some(scope)) if scope != *own => {
                return Err(SubscriptionError::ScopeMismatch);
            }
            (Target::Scope(own), _) => own.clone(),
            (Target::Entity(_), scope) => scope.unwrap_or(ScopeId::Global),
        };
        if matches!(channel, Channel::Wake(_)) && !rules.wakes {
            return Err(SubscriptionError::WakeNotSupported);
        }
        Ok(Wanted { target, channel, filter, scope, idempotency_key })
    }

    fn channel(&self, rules: SubscriptionRules) -> Result<Channel, SubscriptionError> {
        let SubscriptionRequest { on_change, webhook_url, wake_agent_id, .. } = self;
        match (on_change.as_deref(), webhook_url, wake_agent_id) {
            (Some("webhook"), Some(url), None) if is_endpoint(url, rules.http_loopback) => {
                Ok(Channel::Webhook(url.as_str().into()))
            }
            (Some("webhook"), Some(_), Some(_)) => Err(SubscriptionError::WakeAgentUnused),
            (Some("webhook"), _, _) => Err(SubscriptionError::WebhookUrl),
            // A server that wakes nobody says so, whoever was to be woken.
            (Some("wake"), None, agent) if !rules.wakes => {
                Ok(Channel::Wake(agent.as_deref().unwrap_or_default().into()))
            }
            (Some("wake"), None, Some(agent)) if super::name::is_uuid(agent) => {
                Ok(Channel::Wake(agent.to_ascii_lowercase().into()))
            }
            (Some("wake"), _, _) => Err(SubscriptionError::WakeAgent),
            _ => Err(SubscriptionError::OnChange),
        }
    }
}

fn is_key(text: &str) -> bool {
    let len = text.chars().count();
    (1..=FACT_IDEMPOTENCY_KEY_CHARS_MAX).contains(&len) && !text.chars().any(char::is_control)
}

/// Whether a URL is one that may be called. Where its host leads is looked at when it is.
fn is_endpoint(url: &str, http_loopback: bool) -> bool {
    if url.len() > FACT_WEBHOOK_URL_BYTES_MAX || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        return false;
    }
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') || url.contains('#') || url.contains('\\') {
        return false;
    }
    let Some(host) = host_of(authority) else { return false };
    if scheme.eq_ignore_ascii_case("https") {
        return true;
    }
    let is_loopback =
        matches!(host, "127.0.0.1" | "[::1]") || host.eq_ignore_ascii_case("localhost");
    scheme.eq_ignore_ascii_case("http") && http_loopback && is_loopback
}

/// The host, if the port behind it is one.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, rest)) => (authority.get(..inner.len() + 2)?, rest),
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let has_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
    (!host.is_empty() && has_port).then_some(host)
}

/// So long may an attempt take.
pub const TIMEOUT_MS: u64 = 10_000;
/// So often a delivery is tried in all.
pub const ATTEMPTS: u32 = 10;
/// An endpoint ends the subscription with this status.
pub const GONE: u16 = 410;
/// How long events are replayed unless the server says otherwise.
pub const REPLAY_WINDOW_S_DEFAULT: u64 = 3_600;

impl Wanted {
    /// The rules that deliveries follow: everything that fails is tried again, but for the endpoint
    /// that wants nothing more.
    pub fn policy(&self) -> Policy {
        let backoff = Backoff { base_ms: 1_000, cap_ms: 300_000, jitter: Jitter::Added { ms: 0 } };
        let transport = match self.channel {
            Channel::Webhook(_) => Transport::Http,
            Channel::Wake(_) => Transport::Append,
        };
        Policy { ends: Some(GONE), transport, ..Policy::new(TIMEOUT_MS, ATTEMPTS, backoff) }
    }

    /// By what it is found again.
    pub fn dedup(&self, subscriber: &EntityUri) -> Dedup {
        if let Some(key) = &self.idempotency_key {
            return Dedup::Key(subscriber.clone(), key.clone());
        }
        let Wanted { target, channel, filter, scope, .. } = self;
        let to = match channel {
            Channel::Webhook(to) | Channel::Wake(to) => to,
        };
        let (target, scope, filter) = (target.to_string(), scope.to_string(), [filter.bits()]);
        let parts: [&[u8]; 6] = [
            subscriber.as_str().as_bytes(),
            target.as_bytes(),
            channel.on_change().as_bytes(),
            to.as_bytes(),
            scope.as_bytes(),
            &filter,
        ];
        let mut context = digest::Context::new(&digest::SHA256);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let hash = context.finish();
        Dedup::Structure(*hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }
}

/// What an event is about, as far as a subscription is matched with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSubject<'a> {
    pub kind: FactEventKind,
    pub entity: &'a EntityUri,
    pub scope: super::name::Scope,
    pub garden: Option<GardenNo>,
}

impl FactHookSpec {
    /// Whether an event is one that it asks for. Whether its subscriber may have it is asked later,
    /// and again each time.
    pub fn matches(&self, event: &EventSubject<'_>) -> bool {
        let Wanted { target, filter, scope, .. } = &self.wanted;
        let within = match scope {
            ScopeId::Global => true,
            ScopeId::One(scope) => *scope == event.scope,
            ScopeId::Garden(_) => self.garden.is_some() && self.garden == event.garden,
        };
        let is_target = match target {
            Target::Scope(_) => true,
            Target::Entity(entity) => entity == event.entity,
        };
        filter.contains(event.kind) && within && is_target
    }
}

/// The name of an event, as one subscription gets it: on every retry and every replay the same.
pub fn event_id(hook: HookId, event: EventNo) -> String {
    super::name::Id::Event(hook, event).to_string()
}

/// The event that a cursor of a subscription's replay names; `None` if it is not one of its events.
pub fn parse_event_id(hook: HookId, text: &str) -> Option<EventNo> {
    match super::name::Id::parse(text)? {
        super::name::Id::Event(of, event) if of == hook => Some(event),
        _ => None,
    }
}

/// Whether what was recorded then is still replayed.
pub fn is_replayable(recorded_at: Millis, now: Millis, window_s: u64) -> bool {
    now.since(recorded_at) <= window_s.saturating_mul(1_000)
}

impl fmt::Display for EventFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.kinds().map(FactEventKind::as_str).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests;
