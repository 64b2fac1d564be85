//! Finding documents: `POST /api/v1/query`.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::document::order::{Order, SortField, SortKey};
use reveille_core::document::path::CollectionPath;
use reveille_core::document::query::cursor::Cursor;
use reveille_core::document::query::{Query, QuerySpec};
use reveille_core::document::snapshot::{Document, DocumentView};
use reveille_engine::documents::{DocumentCaller, DocumentError, QueryCost, QueryPlan};
use serde_json::{Map, Value, json};

use super::error::Error;
use super::filter::parse_filters;
use super::{body, document_caller};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::{FieldError, Fields};
use crate::http::index::{index_json, parse_direction};
use crate::http::known::{check_fields, check_fields_of};
use crate::http::page::Page;
use crate::http::reply::Reply;

pub(super) const FIELDS: [&str; 7] =
    ["collection", "filters", "orderBy", "limit", "startAfter", "showDeleted", "explain"];

/// Answers a query with one page.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let body = body::read(server, caller, request).await?;
    check_fields(&body.fields, &FIELDS)?;
    let explains = Fields(&body.fields).flag("explain")?;
    let spec = parse_query(&body.fields)?;
    let query = Query::new(spec, server.engine.document_settings().page_limits())?;
    drop(body);
    Ok(respond(server, &document_caller(caller), &query, explains).await?)
}

/// One page of what a query is for.
pub(super) async fn respond(
    server: &Server,
    caller: &DocumentCaller,
    query: &Query,
    explains: bool,
) -> Result<Reply, DocumentError> {
    let engine = &server.engine;
    let mut page = Page::begin_data(engine, &caller.tenant, "documents").await?;
    let answer = engine.query_documents(caller, query).await?;
    let mut last = None;
    let mut is_cut = false;
    for (id, document) in &answer.page.documents {
        if !page.push_with(|body| view(query, id, document).write_json(body)) {
            is_cut = true;
            break;
        }
        last = Some((id, document));
    }
    // The names of documents take room as well: what has none is on the next page.
    let cut = last.filter(|_| is_cut).map(|(id, document)| cursor_at(query, id, document));
    let mut fields = Map::new();
    if let Some(next) = cut.or(answer.page.next) {
        fields.insert("nextCursor".into(), next.encode().into());
    }
    if explains {
        fields.insert("explain".into(), cost_json(&answer.cost));
    }
    Ok(page.finish(StatusCode::OK, &fields))
}

fn view<'a>(query: &'a Query, id: &'a str, document: &'a Document) -> DocumentView<'a> {
    DocumentView { collection: query.collection.as_str(), id, document }
}

/// Where a page ends whose last document is this one.
fn cursor_at(query: &Query, id: &str, document: &Document) -> Cursor {
    let mut key = SortKey::default();
    query.order.write_key(&view(query, id, document), &mut key);
    Cursor { query: query.fingerprint(), key }
}

/// The query of a body.
pub(super) fn parse_query(body: &Map<String, Value>) -> Result<QuerySpec, Error> {
    let fields = Fields(body);
    let collection = fields.text("collection")?;
    let collection = collection.ok_or_else(|| Error::bad_request("`collection` is missing"))?;
    let filters = parse_filters("filters", body.get("filters"))?;
    Ok(QuerySpec {
        collection: CollectionPath::parse(collection)?,
        filters,
        order: parse_order(body)?,
        limit: fields.number("limit")?,
        start_after: fields.text("startAfter")?.map(str::to_owned),
        show_deleted: fields.flag("showDeleted")?,
    })
}

/// Reads `[{"field","direction"}]`.
fn parse_order(body: &Map<String, Value>) -> Result<Order, Error> {
    let list = Fields(body).list("orderBy")?.iter().enumerate();
    let fields = list.map(|(at, by)| parse_sort_field(by, &format!("orderBy[{at}]")));
    Ok(Order::new(fields.collect::<Result<_, _>>()?)?)
}

fn parse_sort_field(by: &Value, name: &str) -> Result<SortField, FieldError> {
    let Value::Object(object) = by else {
        return Err(format!("`{name}` must be an object with `field` and `direction`").into());
    };
    check_fields_of(name, object, &["field", "direction"])?;
    let field = Fields(object).text("field")?.ok_or_else(|| format!("`{name}` has no `field`"))?;
    SortField::new(field, parse_direction(object, name)?)
        .map_err(|error| format!("`{name}`: {error}").into())
}

/// What the answer has cost.
fn cost_json(cost: &QueryCost) -> Value {
    let plan = match &cost.plan {
        QueryPlan::Scan => json!({ "kind": "scan" }),
        QueryPlan::Index(index) => json!({ "kind": "index", "index": index_json(index) }),
    };
    json!({
        "plan": plan,
        "documentsRead": cost.documents_read,
        "indexEntriesRead": cost.index_entries_read,
        "bytesRead": cost.bytes_read,
        "sortedInMemory": cost.sorted_in_memory,
        "tookMs": cost.took_ms,
    })
}
