//! Streams: which there are.

use reveille_core::stream::{Expiry, Head};
use reveille_engine::streams::{StreamFilter, StreamItem};
use serde_json::{Value, json};

use super::dlq::tenant_of;
use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::moment;
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::Reply;

/// `GET /admin/v1/streams?tenant=&prefix=&state=&from=&to=&after=&limit=`: `state` is open or closed, and
/// `from` and `to` are about when a stream was made. With filters a page may be short, or empty, and have
/// a next one.
pub(super) async fn list(
    server: &Server,
    caller: &Caller,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    query.check_known(&["tenant", "prefix", "state", "from", "to", "after", "limit"])?;
    let tenant = tenant_of(caller, &query)?;
    let is_closed = match query.get("state")? {
        None => None,
        Some("open") => Some(false),
        Some("closed") => Some(true),
        Some(_) => return Err(RequestError::Query("`state` is open or closed".into()).into()),
    };
    let time = |name| {
        Ok::<_, RequestError>(moment::of_query(&query, name)?.map(|it| server.engine.time_of(it)))
    };
    let (created_from, created_to) = (time("from")?, time("to")?);
    let is_wanted = |head: &Head| {
        is_closed.is_none_or(|is_closed| head.closed.is_some() == is_closed)
            && created_from.is_none_or(|from| from <= head.created_at)
            && created_to.is_none_or(|to| head.created_at < to)
    };
    let prefix = query.get("prefix")?.unwrap_or_default();
    let (after, limit) = (query.get("after")?, page_limit(&query)?);
    let mut page = Page::begin(&server.engine, &caller.tenant, "streams").await?;
    let mut take = |item: &StreamItem| page.push(&stream_json(server, item));
    let filter = StreamFilter { prefix, is_wanted: &is_wanted };
    let next = server.engine.streams(&tenant, &filter, after, limit, &mut take)?;
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
