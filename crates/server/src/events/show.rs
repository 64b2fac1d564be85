//! Subscriptions for those who look: one, many, those that match, and what they have come to.

use http::StatusCode;
use reveille_core::Millis;
use reveille_core::delivery::hook::{DeliveryCounts, Hook, HookId};
use reveille_core::event::{EventType, Shard};
use reveille_engine::deliveries::index::HookAge;
use reveille_engine::events::hook::EventHook;
use serde_json::{Map, Value, json};

use super::error::Error;
use super::{Scope, namespace_of};
use crate::Server;
use crate::http::page::{PAGE, Page};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// The subscription of this id, if it is within reach.
pub(super) fn find_hook(server: &Server, scope: &Scope, id: &str) -> Result<EventHook, Error> {
    server.engine.find_hook(scope.reach(), id)?.ok_or_else(Error::subscription_not_found)
}

/// A subscription without its secret.
pub(super) fn hook_json(server: &Server, hook: &EventHook) -> Value {
    let EventHook { hook, spec } = hook;
    let namespace = namespace_of(&hook.tenant);
    let mut value = json!({
        "id": &*hook.name,
        "workerId": spec.worker.as_str(),
        "workerBinding": spec.binding.as_deref(),
        "pattern": spec.pattern.as_str(),
        "patternPrefix": spec.pattern.literal_prefix(),
        "rpcMethod": spec.method.as_str(),
        "maxRetries": spec.max_retries,
        "timeoutMs": spec.timeout_ms,
        "retry": {
            "initial": spec.retry.initial_ms,
            "max": spec.retry.max_ms,
            "giveUpAfter": spec.retry.give_up_after_ms,
        },
        "concurrency": spec.limits.concurrency,
        "rateLimit": spec.limits.rate.map(|rate| rate.per_s),
        "signed": spec.secret.is_some(),
        "active": hook.is_active(),
        "paused": hook.paused,
        "createdAt": server.engine.date_of(hook.created_at).0,
        "created_by": hook.created_by.as_deref(),
        "updatedAt": server.engine.date_of(hook.updated_at).0,
        "shard": Shard::of_pattern(&spec.pattern).label(namespace),
        "namespace": namespace,
    });
    if let (Some((_, until)), Some(object)) = (&spec.former.secret, value.as_object_mut()) {
        object.insert("previousSecretUntil".into(), until.0.into());
    }
    value
}

/// `GET /subscriptions/{id}`
pub(super) fn one(server: &Server, scope: &Scope, id: &str) -> Result<Reply, Error> {
    let hook = find_hook(server, scope, id)?;
    Ok(reply::json(StatusCode::OK, &json!({ "subscription": hook_json(server, &hook) })))
}

/// `GET /subscriptions/list`: those that all filters let through, newest first. `offset` counts from
/// the newest one, or from where `after` goes on.
pub(super) async fn list(
    server: &Server,
    scope: &Scope,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let filter = ListFilter::parse(&query)?;
    let (mut left, mut skipped) =
        (page_limit(&query, PAGE)?, parse_number(&query, "offset")?.unwrap_or(0));
    let after = query.get("after")?.map(parse_age).transpose()?;
    let mut page = Page::begin(&server.engine, &scope.tenant, "subscriptions").await?;
    let (engine, mut damage) = (&server.engine, None);
    let mut take = |hook: &EventHook| {
        let counts = match filter.failing.map(|_| engine.counts(&hook.hook)).transpose() {
            Ok(counts) => counts,
            Err(error) => {
                damage = Some(error);
                return false;
            }
        };
        if !filter.accepts(hook, counts.as_ref()) {
            return true;
        }
        if skipped > 0 {
            skipped -= 1;
            return true;
        }
        let is_taken = left > 0 && page.push(&list_item_json(server, hook, counts.as_ref()));
        left -= usize::from(is_taken);
        is_taken
    };
    let next = engine.hooks(scope.reach(), after, &mut take).await;
    if let Some(error) = damage {
        return Err(error.into());
    }
    let mut fields = Map::new();
    fields.insert("namespace".into(), scope.name().into());
    if let Some(shard) = filter.shard {
        let label = match Shard::parse_label(shard) {
            Some((None, own)) => own.label(scope.name()),
            _ => shard.to_owned(),
        };
        fields.insert("shard".into(), label.into());
    }
    if let Some(HookAge { created_at, id }) = next {
        fields.insert("next".into(), format!("{}-{}", created_at.0, id.0).into());
    }
    Ok(page.finish(StatusCode::OK, &fields))
}

/// Which subscriptions are listed.
struct ListFilter<'a> {
    active: Option<bool>,
    paused: Option<bool>,
    /// Whether deliveries fail, or were given up.
    failing: Option<bool>,
    worker: Option<&'a str>,
    prefix: Option<&'a str>,
    shard: Option<&'a str>,
    created_by: Option<&'a str>,
}

impl<'a> ListFilter<'a> {
    fn parse(query: &'a Query) -> Result<ListFilter<'a>, Error> {
        Ok(ListFilter {
            active: parse_flag(query, "active")?,
            paused: parse_flag(query, "paused")?,
            failing: parse_flag(query, "failing")?,
            worker: query.get("workerId")?,
            prefix: query.get("patternPrefix")?,
            shard: query.get("shard")?,
            created_by: query.get("created_by")?,
        })
    }

    /// Whether all of it fits; counts are at hand where they are asked for.
    fn accepts(&self, hook: &EventHook, counts: Option<&DeliveryCounts>) -> bool {
        let EventHook { hook, spec } = hook;
        let own = Shard::of_pattern(&spec.pattern);
        let is_failing = counts.is_some_and(|it| it.failed > 0 || it.dead_letters > 0);
        self.active.is_none_or(|active| hook.is_active() == active)
            && self.paused.is_none_or(|paused| hook.paused == paused)
            && self.failing.is_none_or(|failing| is_failing == failing)
            && self.worker.is_none_or(|worker| spec.worker.as_str() == worker)
            && self.created_by.is_none_or(|key| hook.created_by.as_deref() == Some(key))
            && self.prefix.is_none_or(|prefix| spec.pattern.as_str().starts_with(prefix))
            && self.shard.is_none_or(|shard| own.is_meant_by(shard, namespace_of(&hook.tenant)))
    }
}

fn parse_flag(query: &Query, name: &str) -> Result<Option<bool>, Error> {
    match query.get(name)? {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(Error::invalid_parameter(name, "must be true or false")),
    }
}

/// Where a list of subscriptions goes on.
fn parse_age(text: &str) -> Result<HookAge, Error> {
    let parts = text.split_once('-').and_then(|(at, id)| Some((parse_u64(at)?, parse_u64(id)?)));
    let (at, id) = parts.ok_or_else(not_a_next)?;
    Ok(HookAge { created_at: Millis(at), id: HookId(id) })
}

/// A number that is nothing but digits.
pub(super) fn parse_u64(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(super) fn not_a_next() -> Error {
    Error::invalid_parameter("after", "must be the `next` of the page before")
}

fn list_item_json(server: &Server, hook: &EventHook, counts: Option<&DeliveryCounts>) -> Value {
    let mut value = hook_json(server, hook);
    let shard = value.get("shard").cloned().unwrap_or_default();
    if let Some(object) = value.as_object_mut() {
        object.insert("_shard".into(), shard);
        if let Some(counts) = counts {
            object.insert("stats".into(), stats_json(Some(&hook.hook), counts));
        }
    }
    value
}

/// `GET /subscriptions/match?eventType=TYPE&limit=&after=`: the active ones that would get such an
/// event, newest first.
pub(super) async fn matching(
    server: &Server,
    scope: &Scope,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let kind = query.get("eventType")?.filter(|kind| !kind.is_empty());
    let kind = kind.ok_or_else(|| {
        Error::bad_request("MISSING_PARAM", "Missing required query param: eventType")
    })?;
    let kind = parse_event_type(kind)?;
    let limit = page_limit(&query, PAGE)?;
    let after = query.get("after")?.map(|text| parse_u64(text).ok_or_else(not_a_next));
    let before = HookId(after.transpose()?.unwrap_or(u64::MAX));
    let mut page = Page::begin(&server.engine, &scope.tenant, "subscriptions").await?;
    let hooks = server.engine.matching_hooks(&scope.tenant, &kind, before, limit + 1);
    let taken = hooks
        .iter()
        .take(limit)
        .take_while(|it| page.push(&list_item_json(server, it, None)))
        .count();
    let last = hooks.get(..taken).and_then(|taken| taken.last());
    let mut fields = Map::new();
    fields.insert("eventType".into(), kind.as_str().into());
    fields.insert("shard".into(), Shard::of_type(&kind).label(scope.name()).into());
    fields.insert("namespace".into(), scope.name().into());
    if let Some(last) = last.filter(|_| taken < hooks.len()) {
        fields.insert("next".into(), last.hook.id.0.to_string().into());
    }
    Ok(page.finish(StatusCode::OK, &fields))
}

/// The type of an event in a query.
pub(super) fn parse_event_type(text: &str) -> Result<EventType, Error> {
    let invalid =
        |error| Error::bad_request("INVALID_EVENT_TYPE", format!("Invalid eventType: {error}"));
    EventType::parse(text).map_err(invalid)
}

/// `GET /subscriptions/status/{id}`: nobody and nothing for one that is not there.
pub(super) fn status(server: &Server, scope: &Scope, id: &str) -> Result<Reply, Error> {
    let hook = server.engine.find_hook(scope.reach(), id)?;
    let counts = match &hook {
        Some(EventHook { hook, .. }) => server.engine.counts(hook)?,
        None => DeliveryCounts::default(),
    };
    let stats = stats_json(hook.as_ref().map(|it| &*it.hook), &counts);
    let hook = hook.as_ref().map(|hook| hook_json(server, hook));
    let answer = json!({ "subscription": hook, "stats": stats });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// What the deliveries of a subscription have come to.
fn stats_json(hook: Option<&Hook>, counts: &DeliveryCounts) -> Value {
    json!({
        "pendingDeliveries": counts.pending,
        "failedDeliveries": counts.failed,
        "deadLetters": counts.dead_letters,
        "successRate": ratio(counts.delivered, counts.attempts),
        "totalDelivered": counts.delivered,
        "totalAttempts": counts.attempts,
        "waiting": hook.map_or(0, |hook| waiting(hook, counts)),
    })
}

/// How many deliveries wait for the subscription to be resumed or reactivated.
pub(super) fn waiting(hook: &Hook, counts: &DeliveryCounts) -> u64 {
    if hook.is_sending() { 0 } else { counts.pending + counts.failed }
}

/// A part of a whole; nothing of nothing is nothing.
fn ratio(part: u64, whole: u64) -> f64 {
    // As floating-point numbers both are exact up to 2^53.
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// How many entries a page has.
pub(super) fn page_limit(query: &Query, default: usize) -> Result<usize, Error> {
    let Some(limit) = parse_number(query, "limit")? else { return Ok(default) };
    if (1..=PAGE).contains(&limit) {
        return Ok(limit);
    }
    Err(Error::invalid_parameter("limit", &format!("must be from 1 to {PAGE}")))
}

fn parse_number(query: &Query, name: &str) -> Result<Option<usize>, Error> {
    let Some(text) = query.get(name)? else { return Ok(None) };
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_plain);
    number.map(Some).ok_or_else(|| Error::invalid_parameter(name, "must be a whole number"))
}
