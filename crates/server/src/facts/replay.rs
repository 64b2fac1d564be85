//! What a subscription was told, once more: authorised as a delivery is, event by event.

use http::StatusCode;
use reveille_engine::Damaged;
use serde_json::Map;
use serde_json::value::RawValue;

use super::body::page_limit;
use super::error::Error;
use super::fact_caller;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::Reply;

/// Events of a page, unless the caller says otherwise, and at most.
const PAGE: (usize, usize) = (100, 500);

/// `GET /v1/subscriptions/{id}/events?after=&limit=`: oldest first, within the window. What the
/// subscriber may not have is left out, without a trace of it.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    id: &str,
    query: &Query,
) -> Result<Reply, Error> {
    let limit = page_limit(query, PAGE)?;
    let after = query.get("after")?.map(str::to_owned);
    let window_s = server.config.facts.replay_window_s;
    let mut page = Page::begin_data(&server.engine, &caller.tenant, "events").await?;
    let (engine, by) = (caller.engine(server), fact_caller(caller));
    let replay = engine.replay_facts(&by, id, after, limit, window_s).await?;
    for event in &replay.events {
        let envelope: &RawValue = serde_json::from_slice(event)
            .map_err(|error| Damaged(format!("an envelope: {error}")))?;
        page.push(&envelope);
    }
    let mut fields = Map::new();
    fields.insert("replay_window_s".into(), window_s.into());
    fields.insert("next_after".into(), replay.next_after.into());
    fields.insert("has_more".into(), replay.has_more.into());
    Ok(page.finish(StatusCode::OK, &fields))
}
