//! Streams: which there are.

use http::StatusCode;
use reveille_core::stream::Expiry;
use reveille_engine::streams::StreamItem;
use serde_json::{Value, json};

use super::error::Error;
use super::page_limit;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// `GET /admin/v1/streams?prefix=&after=&limit=`
pub(super) fn list(server: &Server, caller: &Caller, query: Option<&str>) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let prefix = query.get("prefix")?.unwrap_or_default();
    let (after, limit) = (query.get("after")?, page_limit(&query)?);
    let page = server.engine.streams(&caller.tenant, prefix, after, limit)?;
    let mut body = json!({ "streams": page.items.iter().map(stream_json).collect::<Vec<_>>() });
    if let (Some(next), Some(object)) = (page.next, body.as_object_mut()) {
        object.insert("next".into(), next.into());
    }
    Ok(reply::json(StatusCode::OK, &body))
}

fn stream_json(item: &StreamItem) -> Value {
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
