//! The rules of a tenant: who may read and write which of its documents.

use http::header::{self, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::document::rules::RuleSet;
use reveille_core::limits::RULES_BYTES_MAX;
use reveille_kernel::task;

use super::error::Error;
use super::tenants::tenant_of;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::FieldError;
use crate::http::inbound;
use crate::http::query::Query;
use crate::http::reply::{self, Reply, ReplyBody};

/// Answers a request about the rules of a tenant.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let tenant = tenant_of(caller, request.uri().path())?;
    Query::parse(request.uri().query()).check_known(&[])?;
    match *request.method() {
        Method::GET | Method::HEAD => show(server, caller, &tenant),
        Method::PUT => put(server, caller, &tenant, request).await,
        Method::DELETE => {
            caller.engine(server).set_document_rules(&tenant, None).await?;
            Ok(reply::status(StatusCode::NO_CONTENT))
        }
        ref method => {
            let (method, allowed) = (method.clone(), "GET, HEAD, PUT, DELETE, OPTIONS");
            Err(RequestError::Method { method, allowed }.into())
        }
    }
}

/// `PUT /admin/v1/tenants/{tenant}/rules`: the body is the rules.
async fn put(
    server: &Server,
    caller: &Caller,
    tenant: &Tenant,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let (engine, max) = (&server.engine, RULES_BYTES_MAX.min(server.config.max_body_bytes));
    // To read many conditions takes a while.
    let body = inbound::read_in_turn(engine, &caller.tenant, &parts.headers, body, max).await?;
    let text = String::from_utf8(body.bytes.to_vec())
        .map_err(|_| FieldError("rules are JSON, and this is not even UTF-8".into()))?;
    let rules = task::blocking(move || RuleSet::parse(&text)).await;
    let rules = rules.map_err(|error| FieldError(error.to_string()))?;
    caller.engine(server).set_document_rules(tenant, Some(rules)).await?;
    show(server, caller, tenant)
}

/// `GET /admin/v1/tenants/{tenant}/rules`: as they were put.
fn show(server: &Server, caller: &Caller, tenant: &Tenant) -> Result<Reply, Error> {
    let rules = server.engine.document_rules(tenant).ok_or(Error::RulesNotFound)?;
    let mut reply = reply::status(StatusCode::OK);
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, json);
    let room = server.engine.reply_room(&caller.tenant);
    *reply.body_mut() = ReplyBody::Full(room.hold(String::from(&*rules).into()));
    Ok(reply)
}
