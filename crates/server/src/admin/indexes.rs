//! The indexes of a tenant's documents: which there are, and which there are to be.

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_engine::documents::{IndexProgress, IndexView};
use serde_json::{Map, Value, json};

use super::error::Error;
use super::tenants::tenant_of;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields;
use crate::http::inbound;
use crate::http::index::{index_json, parse_indexes};
use crate::http::known::check_fields;
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::Reply;

/// Two hundred indexes of eight fields with long names each are less.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Answers a request about the indexes of a tenant.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let tenant = tenant_of(caller, request.uri().path())?;
    Query::parse(request.uri().query()).check_known(&[])?;
    match *request.method() {
        Method::GET | Method::HEAD => {
            show(server, caller, &server.engine.document_indexes(&tenant)?).await
        }
        Method::PUT => declare(server, caller, &tenant, request).await,
        ref method => {
            let (method, allowed) = (method.clone(), "GET, HEAD, PUT, OPTIONS");
            Err(RequestError::Method { method, allowed }.into())
        }
    }
}

/// `PUT /admin/v1/tenants/{tenant}/indexes`: those that are not there are built, those that are not
/// named go.
async fn declare(
    server: &Server,
    caller: &Caller,
    tenant: &Tenant,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let max = BODY_BYTES_MAX.min(server.config.max_body_bytes);
    let body = inbound::read(&server.engine, &caller.tenant, &parts.headers, body, max).await?;
    let body = fields::parse_object(&body.bytes)?;
    check_fields(&body, &["indexes"])?;
    let indexes = parse_indexes(&body)?;
    let views = caller.engine(server).set_document_indexes(tenant, indexes).await?;
    show(server, caller, &views).await
}

/// The indexes, each with how far it is.
async fn show(server: &Server, caller: &Caller, views: &[IndexView]) -> Result<Reply, Error> {
    let mut page = Page::begin(&server.engine, &caller.tenant, "indexes").await?;
    for view in views {
        // All of them have room: their number and their names are limited.
        page.push(&view_json(view));
    }
    Ok(page.finish(StatusCode::OK, &Map::new()))
}

fn view_json(view: &IndexView) -> Value {
    let mut object = index_json(&view.definition);
    match view.progress {
        IndexProgress::Ready => {
            object.insert("state".into(), "ready".into());
        }
        IndexProgress::Building { documents } => {
            object.insert("state".into(), "building".into());
            object.insert("progress".into(), json!({ "documents": documents }));
        }
    }
    object.into()
}
