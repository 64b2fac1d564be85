//! What the code behind a trigger asks with its token, and what in-house workers do.
//!
//! | route                        | answers                                                     |
//! |------------------------------|-------------------------------------------------------------|
//! | `POST /api/v1/trigger/get`   | documents in the order of their paths                       |
//! | `POST /api/v1/trigger/query` | a page of one collection                                    |
//! | `POST /api/v1/trigger/write` | a transaction, whose changes say which triggers led to it   |
//!
//! The token alone says who asks and in which tenant. It is judged before anything is read of the
//! body, in this order: signature and expiry, tenant, scope; then the paths, and how often it has
//! been used. Every call is counted and logged; what writes, is denied, passes over the rules or has
//! every path stands in the audit log as well.

mod call;
mod record;

use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::rate::Rate;
use reveille_core::trigger::token::{AccessDenied, Scope, TokenAccess, TokenError, TokenVerifier};
use reveille_engine::events::delivery_named;
use serde_json::Value;

use self::call::Call;
use self::record::CallRecord;
use super::batch::Error;
use crate::Server;
use crate::http::auth::{Origin, bearer_token, is_key, named_tenant};
use crate::http::connections::BusyConnection;
use crate::http::error::RequestError;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};
use crate::http::route::check_read_method;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Get,
    Query,
    Write,
}

impl Operation {
    fn of_path(path: &str) -> Operation {
        match path.rsplit('/').next() {
            Some("get") => Operation::Get,
            Some("query") => Operation::Query,
            _ => Operation::Write,
        }
    }

    fn scope(self) -> Scope {
        match self {
            Operation::Get | Operation::Query => Scope::Read,
            Operation::Write => Scope::Write,
        }
    }
}

/// Answers a call with a token.
pub(crate) async fn answer(
    server: &Server,
    request: Request<Incoming>,
    connection: &BusyConnection,
) -> Reply {
    let operation = Operation::of_path(request.uri().path());
    let origin = Origin::of(request.headers(), connection);
    let mut record = CallRecord::new(operation.scope());
    let result = execute(server, operation, &origin, request, connection, &mut record).await;
    if let Err(error) = &result
        && error.is_denial()
        && let Err(unwritten) = record.write_denial(server, &origin, error).await
    {
        // It is denied whether or not that can be written down.
        tracing::warn!(code = unwritten.code(), "a denied call of a trigger could not be audited");
    }
    record.finish(server, &origin, result.as_ref().map_err(Error::code).err());
    result.unwrap_or_else(Error::reply)
}

/// `GET /api/v1/trigger/jwks.json`: the keys that tokens are signed with, for everybody.
pub(crate) fn keys(server: &Server, method: &Method) -> Result<Reply, RequestError> {
    check_read_method(method)?;
    let keys: Vec<Value> = server.engine.trigger_keys().iter().map(|key| key.jwk()).collect();
    Ok(reply::jwk_set(keys))
}

async fn execute(
    server: &Server,
    operation: Operation,
    origin: &Origin,
    request: Request<Incoming>,
    connection: &BusyConnection,
    record: &mut CallRecord,
) -> Result<Reply, Error> {
    let access = authenticate(server, request.headers())?;
    record.held_by(&access);
    let method = request.method().clone();
    if method != Method::POST {
        return Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into());
    }
    Query::parse(request.uri().query()).check_known(&[])?;
    let named = named_tenant(request.headers())?;
    access.check_scope(named.as_ref(), operation.scope()).map_err(denied)?;
    connection.has_key();
    connection.belongs_to(access.tenant())?;
    let call = Call { server, access: &access, origin };
    match operation {
        Operation::Get => call.get(request, record).await,
        Operation::Query => call.query(request, record).await,
        Operation::Write => call.write(request, record).await,
    }
}

/// Who asks, by a token that is ours and has not expired.
fn authenticate(server: &Server, headers: &HeaderMap) -> Result<TokenAccess, Error> {
    let unauthenticated = |message: &str| Error::new(StatusCode::UNAUTHORIZED, message);
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let text = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().and_then(bearer_token),
        (Some(_), Some(_)) => None,
        (None, _) => {
            return Err(unauthenticated(
                "this takes the token of a delivery; send it as `Authorization: Bearer TOKEN`",
            ));
        }
    };
    let text = text.ok_or_else(|| {
        unauthenticated("the header Authorization must be `Bearer`, a space and a token, once")
    })?;
    let keys = server.engine.trigger_keys();
    let now_s = server.engine.clock().wall().0 / 1_000;
    match (TokenVerifier { keys: &keys }).verify(text, now_s) {
        Ok(claims) => {
            let access = TokenAccess::new(claims);
            if is_of_deleted(server, &access) {
                return Err(unauthenticated(
                    "the trigger of this token was deleted, and its tokens ended with it",
                ));
            }
            Ok(access)
        }
        // Whoever has a key is known, and is in the wrong place.
        Err(TokenError::Invalid) if is_key(server, text) => Err(Error::new(
            StatusCode::FORBIDDEN,
            "a key is not enough here: this takes the token of a delivery, or a system token; with \
             a key documents are at /api/v1/{path}",
        )),
        Err(error) => Err(unauthenticated(&error.to_string())),
    }
}

/// Whether the token went out with a delivery of a trigger that is no more. One of the same name may
/// have been made since. A trigger that is disabled has its calls come to their end.
fn is_of_deleted(server: &Server, access: &TokenAccess) -> bool {
    let delivery = access.delivery().and_then(|name| delivery_named(name).ok());
    delivery.is_some_and(|id| !server.engine.has_hook(access.tenant(), id.hook))
}

/// What a token is not good for.
fn denied(error: AccessDenied) -> Error {
    let code = match &error {
        AccessDenied::Scope(_) => Some("INVALID_SCOPE"),
        AccessDenied::Path(_) => Some("PATH_NOT_ALLOWED"),
        AccessDenied::OtherTenant(_) | AccessDenied::NoSystemRole => None,
    };
    let refused = Error::new(StatusCode::FORBIDDEN, error);
    match code {
        Some(code) => refused.with_detail(None, code),
        None => refused,
    }
}

/// Lets a holder go on who does not ask too often.
fn check_rate(server: &Server, tenant: &Tenant, holder: &str) -> Result<(), Error> {
    let per_s = server.engine.document_settings().trigger_calls_per_s;
    if per_s == 0 {
        return Ok(());
    }
    let rate = Rate { per_s, burst: per_s };
    let now = server.engine.clock().now();
    let taken = server.call_rates.try_take(tenant, holder, rate, now);
    taken.map_err(|next| {
        let message = format!(
            "this trigger has made more than {per_s} calls in a second (--trigger-calls); try \
             again later"
        );
        let wait_s = next.since(now).div_ceil(1_000).max(1);
        Error::new(StatusCode::TOO_MANY_REQUESTS, message)
            .with_header(header::RETRY_AFTER, HeaderValue::from(wait_s))
    })
}
