//! Streams: which there are.

use reveille_core::stream::Expiry;
use reveille_engine::streams::StreamItem;
use serde_json::{Value, json};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::Reply;

/// `GET /admin/v1/streams?prefix=&after=&limit=`
pub(super) async fn list(
    server: &Server,
    caller: &Caller,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    query.check_known(&["prefix", "after", "limit"])?;
    let prefix = query.get("prefix")?.unwrap_or_default();
    let (after, limit) = (query.get("after")?, page_limit(&query)?);
    let mut page = Page::begin(&server.engine, &caller.tenant, "streams").await?;
    let mut take = |item: &StreamItem| page.push(&stream_json(server, item));
    let next = server.engine.streams(&caller.tenant, prefix, after, limit, &mut take)?;
    Ok(page.finish_with_next(next))
}

fn stream_json(server: &Server, item: &StreamItem) -> Value {
    let head = &item.head;
    let mut value = json!({
        "path": item.path.as_str(),
        "content_type": head.content_type.as_str(),
        "next_offset": head.tail.to_string(),
        "closed": head.closed.is_some(),
        "created_at": server.engine.date_of(head.created_at).0,
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
