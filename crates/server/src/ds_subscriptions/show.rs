//! A subscription as it is shown, with the streams that it is for.

use std::collections::BTreeMap;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::StreamPath;
use reveille_core::consumer::{Phase, Stage};
use reveille_core::pattern::Pattern;
use reveille_core::subscription::{LEASE_MS_DEFAULT, STREAM_ROOT, Subscription, Target, relative};
use serde_json::{Map, Value, json};

use super::error::Error;
use super::payload::link_type;
use super::{CONTROL, base_url, find};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::reply::{self, Reply};
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
    let found = find(server, &caller.tenant, id)?;
    let body = subscription_json(server, &found, &base_url(server, &parts)).await?;
    Ok(reply::json(StatusCode::OK, &body))
}

/// All that is told of a subscription. `base_url` is where its server is.
pub(super) async fn subscription_json(
    server: &Server,
    subscription: &Subscription,
    base_url: &str,
) -> Result<Value, Error> {
    let spec = &subscription.spec;
    let (streams, is_truncated) = streams_json(server, subscription).await?;
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| {
        body.insert(name.to_owned(), value);
    };
    set("id", spec.name.as_ref().into());
    set("subscription_id", spec.name.as_ref().into());
    set("lease_ttl_ms", spec.lease_ms.unwrap_or(LEASE_MS_DEFAULT).into());
    set("created_at", subscription.created_at.to_rfc3339().into());
    set("streams", streams.into());
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
        set("next_attempt_at", until.to_rfc3339().into());
    }
    Ok(body.into())
}

/// The streams that it is for, and whether there are more than are shown.
async fn streams_json(
    server: &Server,
    subscription: &Subscription,
) -> Result<(Vec<Value>, bool), Error> {
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
    let items = all.iter().take(STREAMS_MAX).map(|(path, (kind, acked))| {
        json!({ "path": relative(path), "link_type": kind, "acked_offset": acked })
    });
    Ok((items.collect(), is_truncated))
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
    for _ in 0..PAGES_MAX {
        let prefix = pattern.literal_prefix();
        let page = server.engine.streams(&subscription.tenant, prefix, after.as_deref(), PAGE)?;
        for item in page.items {
            if pattern.matches(&item.path)
                && let Some(acked) = server.engine.processed(subscription, &item.head)?
            {
                all.insert(item.path, (link_type(false), AckedOffset(Some(acked))));
            }
            if all.len() > STREAMS_MAX {
                return Ok(true);
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(false);
        }
        // Others have waited meanwhile.
        tokio::task::yield_now().await;
    }
    Ok(true)
}
