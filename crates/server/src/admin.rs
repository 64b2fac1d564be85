//! Inspection: what is there.

mod consumers;
mod deliveries;
pub(crate) mod keys;

use http::StatusCode;
use reveille_core::stream::Expiry;
use reveille_engine::StreamItem;
use serde_json::{Value, json};

use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::Error;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

pub(crate) use consumers::{consumer, consumers};
pub(crate) use deliveries::{deliveries, delivery};

/// Entries on a page, unless the caller asks for fewer.
const PAGE: usize = 1_000;
/// Where consumers are; the rest of the path is the name of one.
const CONSUMERS: &str = "/admin/v1/consumers/";

/// The name of a consumer that is asked for, as it stands in the URL.
pub(crate) fn consumer_name(path: &str) -> Option<&str> {
    path.strip_prefix(CONSUMERS).filter(|name| !name.is_empty())
}

/// `GET /admin/v1/streams?prefix=&after=&limit=`
pub(crate) fn streams(
    server: &Server,
    caller: &Caller,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let prefix = query.get("prefix")?.unwrap_or_default();
    let after = query.get("after")?;
    let limit = limit(&query)?;
    let page = server.engine.streams(&caller.tenant, prefix, after, limit)?;
    let mut body = json!({ "streams": page.items.iter().map(item).collect::<Vec<_>>() });
    if let (Some(next), Some(object)) = (page.next, body.as_object_mut()) {
        object.insert("next".into(), next.into());
    }
    Ok(reply::json(StatusCode::OK, &body))
}

fn limit(query: &Query) -> Result<usize, Error> {
    let Some(text) = query.get("limit")? else { return Ok(PAGE) };
    let limit = text.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
    limit.ok_or_else(|| Error::Query(format!("`limit` is a number from 1 to {PAGE}")))
}

fn item(item: &StreamItem) -> Value {
    let head = &item.head;
    let mut value = json!({
        "path": item.path.as_str(),
        "content_type": head.content_type.as_str(),
        "next_offset": head.tail.to_string(),
        "closed": head.closed.is_some(),
        "created_at": head.created_at.0,
    });
    if let Some(object) = value.as_object_mut() {
        match &head.expiry {
            Expiry::Never => {}
            Expiry::Ttl(seconds) => {
                object.insert("ttl_seconds".into(), (*seconds).into());
            }
            Expiry::At(_, text) => {
                object.insert("expires_at".into(), text.as_ref().into());
            }
        }
        if let Some(fork) = &head.fork {
            object.insert("forked_from".into(), fork.source.as_str().into());
        }
    }
    value
}
