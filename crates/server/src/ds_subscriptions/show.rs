//! A subscription as it is shown, with the streams that it is for.

use std::collections::BTreeMap;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::StreamPath;
use reveille_core::consumer::{Phase, Stage};
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{LEASE_MS_DEFAULT, STREAM_ROOT, Subscription, Target, relative};
use reveille_engine::streams::{StreamFilter, StreamItem};
use serde_json::{Map, Value, json};

use super::error::Error;
use super::payload::link_type;
use super::{CONTROL, base_url, find};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::page::Page;
use crate::http::reply::Reply;
use crate::http::subscription::AckedOffset;

/// Streams that are shown at most.
const STREAMS_MAX: usize = 1_000;
/// Streams that are looked at in one go.
const PAGE: usize = 1_000;
/// How often: a pattern that begins with a wildcard must not have everything read for it.
const PAGES_MAX: usize = 20;

/// `GET subscriptions/:id`
pub(super) async fn show(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, _) = request.into_parts();
    let mut page = begin(server, caller).await?;
    let found = find(server, &caller.tenant, id)?;
    let fields = fill(server, &mut page, &found, &base_url(server, &parts)).await?;
    Ok(page.finish(StatusCode::OK, &fields))
}

/// An answer that shows a subscription, once there is room for it.
pub(super) async fn begin(server: &Server, caller: &Caller) -> Result<Page, Error> {
    Ok(Page::begin(&server.engine, &caller.tenant, "streams").await?)
}

/// Puts the streams of a subscription on a page; returns all else that is told of it. `base_url` is
/// where its server is.
pub(super) async fn fill(
    server: &Server,
    page: &mut Page,
    subscription: &Subscription,
    base_url: &str,
) -> Result<Map<String, Value>, Error> {
    let spec = &subscription.spec;
    let is_truncated = fill_streams(server, page, subscription).await?;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| {
        body.insert(name.to_owned(), value);
    };
    set("id", spec.name.as_ref().into());
    set("subscription_id", spec.name.as_ref().into());
    set("lease_ttl_ms", spec.lease_ms.unwrap_or(LEASE_MS_DEFAULT).into());
    set("created_at", server.engine.date_of(subscription.created_at).to_rfc3339().into());
    if is_truncated {
        set("streams_truncated", true.into());
    }
    if let Some(pattern) = &spec.pattern {
        let text = pattern.as_str();
        set("pattern", text.strip_prefix(STREAM_ROOT).unwrap_or(text).into());
    }
    if let Some(key) = &subscription.created_by {
        set("created_by", key.as_ref().into());
    }
    if let Some(description) = &spec.description {
        set("description", description.as_ref().into());
    }
    match &spec.target {
        Target::Webhook(url) => {
            let keys = server.engine.published_keys();
            let signing = json!({
                "alg": "ed25519",
                "kid": keys.first().map(|key| key.kid()),
                "jwks_url": format!("{base_url}{CONTROL}/jwks.json"),
            });
            set("type", "webhook".into());
            set("webhook", json!({ "url": &**url, "signing": signing }));
        }
        Target::Pull(stream) => {
            set("type", "pull-wake".into());
            set("wake_stream", relative(stream).into());
        }
    }
    let consumer = server.engine.lease_consumer(subscription)?.map(|record| record.consumer);
    let failing = consumer.filter(|consumer| consumer.failing_since.is_some());
    set("status", if failing.is_some() { "failed" } else { "active" }.into());
    if let Some(Phase::Waking { stage: Stage::Paused { until }, .. }) = failing.map(|it| it.phase) {
        set("next_attempt_at", server.engine.date_of(until).to_rfc3339().into());
    }
    Ok(body)
}

/// The streams that it is for. Says whether there are more than are shown.
async fn fill_streams(
    server: &Server,
    page: &mut Page,
    subscription: &Subscription,
) -> Result<bool, Error> {
    let mut all = BTreeMap::new();
    let mut is_truncated = false;
    if let Some(pattern) = &subscription.spec.pattern {
        is_truncated = add_matching(server, subscription, pattern, &mut all).await?;
    }
    // Links are looked at last: a stream that has none even now had not grown before.
    for (path, link) in server.engine.links(subscription, STREAMS_MAX + 1)? {
        all.insert(path, (link_type(link.explicit), AckedOffset(link.acked)));
    }
    is_truncated |= all.len() > STREAMS_MAX;
    let mut items = all.iter().take(STREAMS_MAX).map(|(path, (kind, acked))| {
        json!({ "path": relative(path), "link_type": kind, "acked_offset": acked })
    });
    Ok(!items.all(|item| page.push(&item)) || is_truncated)
}

/// Streams with the type of their link and how far they are processed.
type Links = BTreeMap<StreamPath, (&'static str, AckedOffset)>;

/// Adds streams that the pattern matches and that were there before the subscription: as long as
/// they have no link they have not grown, and all of them is processed. Returns whether there are
/// more than can be looked at.
async fn add_matching(
    server: &Server,
    subscription: &Subscription,
    pattern: &Pattern,
    all: &mut Links,
) -> Result<bool, Error> {
    let mut after: Option<String> = None;
    let filter = StreamFilter { prefix: pattern.literal_prefix(), is_wanted: &|_| true };
    for _ in 0..PAGES_MAX {
        let mut failed = None;
        let mut take = |item: &StreamItem| {
            if pattern.matches(&item.path) {
                match server.engine.processed(subscription, &item.head) {
                    Ok(None) => {}
                    Ok(acked) => {
                        all.insert(item.path.clone(), (link_type(false), AckedOffset(acked)));
                    }
                    Err(damaged) => failed = Some(damaged),
                }
            }
            failed.is_none() && all.len() <= STREAMS_MAX
        };
        let tenant = &subscription.tenant;
        after = server.engine.streams(tenant, &filter, after.as_deref(), PAGE, &mut take)?;
        if let Some(damaged) = failed {
            return Err(damaged.into());
        }
        if after.is_none() || all.len() > STREAMS_MAX {
            return Ok(after.is_some());
        }
        // Others have waited meanwhile.
        tokio::task::yield_now().await;
    }
    Ok(true)
}
