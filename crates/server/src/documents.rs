//! The face of documents: they are written one by one or in transactions, read, and found.
//!
//! | route                                          | module    |
//! |------------------------------------------------|-----------|
//! | `GET /api/v1/{document}`                       | [`read`]  |
//! | `POST /api/v1/{collection}`                    | [`write`] |
//! | `PUT\|PATCH\|DELETE /api/v1/{document}`        | [`write`] |
//! | `GET /api/v1/{collection}?live=sse`            | [`live`]  |
//! | `POST /api/v1/query`                           | [`query`] |
//! | `POST /api/v1/batch`                           | [`batch`] |
//! | `POST /api/v1/trigger/get\|query\|write`       | [`trigger`] |
//!
//! A path with an odd number of segments is a collection, one with an even number a document. All
//! answers have the name of their request (`X-Request-ID`), and refusals are `{"code","message"}`;
//! transactions have a shape of their own for them.

mod batch;
mod body;
mod error;
mod filter;
mod live;
mod query;
mod read;
mod request_id;
mod shape;
mod trigger;
mod write;

use std::sync::Arc;

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::document::path::Place;
use reveille_core::document::rules::RuleAuth;
use reveille_engine::documents::DocumentCaller;

pub(crate) use self::request_id::name_request;
pub(crate) use self::trigger::{answer as answer_trigger, keys as trigger_keys};

use self::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::query::Query;
use crate::http::reply::Reply;

/// Where documents are.
const ROOT: &str = "/api/v1";
const QUERY: &str = "/api/v1/query";

const COLLECTION_METHODS: &str = "GET, POST, OPTIONS";
const DOCUMENT_METHODS: &str = "GET, HEAD, PUT, PATCH, DELETE, OPTIONS";

/// Refuses, in the shape of this face, what was wrong before it was reached.
pub(crate) fn refuse(error: RequestError) -> Reply {
    Error::from(error).reply()
}

/// The same for transactions.
pub(crate) fn refuse_batch(error: RequestError) -> Reply {
    batch::Error::from(error).reply()
}

/// Answers a request about documents.
pub(crate) async fn answer(server: &Server, caller: &Caller, request: Request<Incoming>) -> Reply {
    route(server, caller, request).await.unwrap_or_else(Error::reply)
}

/// Answers `POST /api/v1/batch`.
pub(crate) async fn answer_batch(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Reply {
    batch::answer(server, caller, request).await
}

async fn route(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let method = request.method().clone();
    let path = request.uri().path();
    let query = Query::parse(request.uri().query());
    if path == QUERY {
        query.check_known(&[])?;
        if method != Method::POST {
            return Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into());
        }
        return query::answer(server, caller, request).await;
    }
    let path = path.strip_prefix(ROOT).unwrap_or_default();
    let place = Place::parse(path.strip_prefix('/').unwrap_or_default())?;
    if let (Place::Collection(collection), &Method::GET) = (&place, &method)
        && !query.is_empty()
    {
        query.check_known(&live::PARAMETERS)?;
        return live::answer(server, caller, collection, &query, &request).await;
    }
    query.check_known(&[])?;
    match (place, &method) {
        (Place::Collection(collection), &Method::POST) => {
            write::create(server, caller, &collection, request).await
        }
        (Place::Collection(collection), &Method::GET | &Method::HEAD) => {
            Err(Error::bad_request(format!(
                "`{collection}` is a collection; `POST {QUERY}` finds its documents, and `GET \
                     {ROOT}/{collection}?live=sse` follows them"
            )))
        }
        (Place::Collection(_), _) => {
            Err(RequestError::Method { method, allowed: COLLECTION_METHODS }.into())
        }
        (Place::Document(path), &Method::GET | &Method::HEAD) => {
            read::answer(server, caller, &path).await
        }
        (Place::Document(path), &Method::PUT) => write::set(server, caller, path, request).await,
        (Place::Document(path), &Method::PATCH) => {
            write::patch(server, caller, path, request).await
        }
        (Place::Document(path), &Method::DELETE) => {
            write::delete(server, caller, path, request).await
        }
        (Place::Document(_), _) => {
            Err(RequestError::Method { method, allowed: DOCUMENT_METHODS }.into())
        }
    }
}

/// Who asks, as rules and idempotency keys know them.
fn document_caller(caller: &Caller) -> DocumentCaller {
    DocumentCaller {
        tenant: caller.tenant.clone(),
        auth: caller.as_key().map_or_else(RuleAuth::local, |key| RuleAuth::of(&key)),
        scope: caller.key_id().unwrap_or_else(|| Arc::from("")),
    }
}
