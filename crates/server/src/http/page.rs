//! Pages of lists: entry by entry they become the bytes that leave, within a limit and the budget.

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderValue};
use reveille_core::Tenant;
use reveille_engine::{Engine, Unavailable};
use reveille_kernel::limits::PAGE_BYTES_MAX;
use reveille_kernel::reply_budget::ReplyPermit;
use serde::Serialize;
use serde_json::{Map, Value};

use super::error::RequestError;
use super::query::Query;
use super::reply::{self, Reply, ReplyBody};

/// Entries on a page, unless the caller asks for fewer.
pub(crate) const PAGE: usize = 1_000;

/// A JSON object with a list that is being written, and the right to hold it.
pub(crate) struct Page {
    body: Vec<u8>,
    is_empty: bool,
    permit: ReplyPermit,
}

impl Page {
    /// A page whose list has this name, once there is room for one more page of the tenant's.
    pub(crate) async fn begin(
        engine: &Engine,
        tenant: &Tenant,
        name: &'static str,
    ) -> Result<Page, Unavailable> {
        Ok(Page::begin_with(engine.admit_page(tenant).await?, name))
    }

    /// A page of data, which counts where answers do that hold data.
    pub(crate) async fn begin_data(
        engine: &Engine,
        tenant: &Tenant,
        name: &'static str,
    ) -> Result<Page, Unavailable> {
        let room = engine.reply_room(tenant);
        let permit = room.admit(PAGE_BYTES_MAX, engine.clock().as_ref()).await?;
        Ok(Page::begin_with(permit, name))
    }

    fn begin_with(permit: ReplyPermit, name: &'static str) -> Page {
        Page { body: format!("{{\"{name}\":[").into(), is_empty: true, permit }
    }

    /// Adds an entry, if there is room for it: the first one always finds some.
    pub(crate) fn push(&mut self, entry: &impl Serialize) -> bool {
        self.push_with(|body| {
            serde_json::to_writer(body, entry).expect("an entry of a list can be written");
        })
    }

    /// The same for what writes itself, as JSON.
    pub(crate) fn push_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = self.body.len();
        if !self.is_empty {
            self.body.push(b',');
        }
        write(&mut self.body);
        if !self.is_empty && self.body.len() > PAGE_BYTES_MAX {
            self.body.truncate(before);
            return false;
        }
        self.is_empty = false;
        true
    }

    /// The answer, with the fields that stand beside the list.
    pub(crate) fn finish(self, status: StatusCode, fields: &Map<String, Value>) -> Reply {
        let Page { mut body, mut permit, .. } = self;
        body.push(b']');
        for (name, value) in fields {
            body.push(b',');
            serde_json::to_writer(&mut body, name).expect("a name can be written");
            body.push(b':');
            serde_json::to_writer(&mut body, value).expect("a value can be written");
        }
        body.push(b'}');
        body.shrink_to_fit();
        permit.shrink_to(body.len());
        let mut reply = reply::status(status);
        let json = HeaderValue::from_static("application/json");
        reply.headers_mut().insert(header::CONTENT_TYPE, json);
        // What it takes in memory is given back when the last of it has left.
        *reply.body_mut() = ReplyBody::Full(permit.attach(Bytes::from(body)));
        reply
    }

    /// The answer, with where the next page begins if there is one.
    pub(crate) fn finish_with_next(self, next: Option<impl Into<Value>>) -> Reply {
        let fields = next.map(|next| ("next".to_owned(), next.into())).into_iter().collect();
        self.finish(StatusCode::OK, &fields)
    }
}

/// How many entries a page may have at most.
pub(crate) fn page_limit(query: &Query) -> Result<usize, RequestError> {
    let Some(text) = query.get("limit")? else { return Ok(PAGE) };
    let limit = text.parse().ok().filter(|limit| (1..=PAGE).contains(limit));
    limit.ok_or_else(|| RequestError::Query(format!("`limit` is a number from 1 to {PAGE}")))
}
