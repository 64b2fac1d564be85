//! Tokens that admins ask for: those of a trigger, to try its code by hand, and those of in-house
//! workers.

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::audit::{AuditEntry, action};
use reveille_core::document::origin::Origin;
use reveille_core::trigger::TriggerId;
use reveille_core::trigger::limits::ALLOW_PATHS_MAX;
use reveille_core::trigger::token::{
    AllowedPath, Issue, SYSTEM_ROLES, Scopes, SystemClaims, TOKEN_TTL_S, TriggerClaims,
};
use serde_json::{Map, Value, json};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::{FieldError, Fields};
use crate::http::inbound;
use crate::http::known::check_fields;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// How long a token may be good for, in seconds: whoever has one cannot be shut out before.
const TOKEN_TTL_SECONDS_MAX: u64 = 3_600;
/// How long a worker's is when nobody says.
const SYSTEM_TOKEN_TTL_S: u64 = 900;

const TRIGGER_FIELDS: [&str; 8] =
    ["tenant", "triggerId", "scopes", "allowPaths", "maxOps", "maxPayloadKb", "bypassRules", "ttl"];

/// Answers `POST /admin/v1/tokens/trigger` and `…/system`.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let method = request.method().clone();
    if method != Method::POST {
        return Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into());
    }
    Query::parse(request.uri().query()).check_known(&[])?;
    let is_system = request.uri().path().ends_with("/system");
    let (parts, body) = request.into_parts();
    let body = inbound::read_object::<Error>(server, &caller.tenant, &parts.headers, body).await?;
    if is_system {
        issue_system_token(server, caller, &body).await
    } else {
        issue_trigger_token(server, caller, &body).await
    }
}

async fn issue_trigger_token(
    server: &Server,
    caller: &Caller,
    body: &Map<String, Value>,
) -> Result<Reply, Error> {
    check_fields(body, &TRIGGER_FIELDS)?;
    let fields = Fields(body);
    let tenant = parse_tenant(caller, body)?;
    let trigger = fields.text("triggerId")?.ok_or_else(|| missing("triggerId"))?;
    let trigger = TriggerId::parse(trigger)
        .map_err(|error| FieldError(format!("`triggerId`: {error}")))?
        .to_shared();
    let allow_paths = parse_paths(body)?;
    let bypass_rules = fields.flag("bypassRules")?;
    if bypass_rules && allow_paths.iter().any(AllowedPath::is_everything) {
        let message = "`bypassRules` takes narrow `allowPaths`; `/` is every document";
        return Err(FieldError::from(message).into());
    }
    let claims = TriggerClaims {
        tenant: tenant.clone(),
        trigger: trigger.clone(),
        scopes: parse_scopes(body)?,
        allow_paths,
        max_ops: parse_limit(body, "maxOps")?,
        max_payload_kb: parse_limit(body, "maxPayloadKb")?,
        bypass_rules,
        origin: Origin::of_chain([trigger.clone()])
            .map_err(|error| FieldError(error.to_string()))?,
        delivery: None,
        issue: issue(server, parse_ttl_s(body, TOKEN_TTL_S)?),
    };
    let key = server.engine.trigger_keys();
    let key = key.first().ok_or(Error::NoTokenKey)?;
    let token = key.mint(&claims).map_err(|error| FieldError(error.to_string()))?;
    let paths: Vec<&str> = claims.allow_paths.iter().map(AllowedPath::as_str).collect();
    let scopes: Vec<&str> = claims.scopes.names().collect();
    let described = json!({
        "jti": &*claims.issue.id, "scopes": scopes, "allowPaths": paths,
        "maxOps": claims.max_ops, "maxPayloadKb": claims.max_payload_kb,
        "bypassRules": claims.bypass_rules, "expiresAt": claims.issue.expires_at_s * 1_000,
    });
    finish(server, caller, &tenant, &trigger, &claims.issue, &described, &token).await
}

async fn issue_system_token(
    server: &Server,
    caller: &Caller,
    body: &Map<String, Value>,
) -> Result<Reply, Error> {
    check_fields(body, &["tenant", "ttl"])?;
    let tenant = parse_tenant(caller, body)?;
    let claims = SystemClaims {
        tenant: tenant.clone(),
        roles: SYSTEM_ROLES.map(Into::into).into(),
        issue: issue(server, parse_ttl_s(body, SYSTEM_TOKEN_TTL_S)?),
    };
    let key = server.engine.trigger_keys();
    let key = key.first().ok_or(Error::NoTokenKey)?;
    let token = key.mint_system(&claims).map_err(|error| FieldError(error.to_string()))?;
    let described = json!({
        "jti": &*claims.issue.id, "roles": SYSTEM_ROLES,
        "expiresAt": claims.issue.expires_at_s * 1_000,
    });
    let subject = reveille_core::trigger::token::SYSTEM_SUBJECT;
    finish(server, caller, &tenant, subject, &claims.issue, &described, &token).await
}

/// Nobody gets a token before it is written down who asked for it.
async fn finish(
    server: &Server,
    caller: &Caller,
    tenant: &Tenant,
    subject: &str,
    issue: &Issue,
    described: &Value,
    token: &str,
) -> Result<Reply, Error> {
    let tenant_of_row = Some(tenant.clone());
    let mut entry = AuditEntry::new(caller.actor(), action::TOKEN_ISSUED, tenant_of_row, subject);
    entry.diff = Some(described.to_string().into());
    server.engine.write_audit_row(tenant, entry).await?;
    let body = json!({ "token": token, "expiresAt": issue.expires_at_s * 1_000 });
    Ok(reply::json(StatusCode::OK, &body))
}

fn issue(server: &Server, ttl_s: u64) -> Issue {
    let issued_at_s = server.engine.clock().wall().0 / 1_000;
    let id = server.engine.fresh_ulid().to_string().into();
    Issue { id, issued_at_s, expires_at_s: issued_at_s + ttl_s }
}

/// Whose documents it will be for.
fn parse_tenant(caller: &Caller, body: &Map<String, Value>) -> Result<Tenant, Error> {
    let Some(name) = Fields(body).text("tenant")? else { return Ok(caller.tenant.clone()) };
    let tenant = Tenant::parse(name).map_err(|error| FieldError(format!("`tenant`: {error}")))?;
    if tenant == caller.tenant || caller.sees_all() {
        return Ok(tenant);
    }
    Err(RequestError::Forbidden(
        "the key is for its own tenant alone; for another one it takes an admin key without a \
         tenant",
    )
    .into())
}

fn parse_scopes(body: &Map<String, Value>) -> Result<Scopes, FieldError> {
    let known = "`scopes` is a list of \"trigger.read\" and \"trigger.write\"";
    let names: Option<Vec<&str>> = Fields(body).list("scopes")?.iter().map(Value::as_str).collect();
    let scopes = names.and_then(|names| Scopes::parse_names(names).ok());
    let some = scopes.filter(|scopes| scopes.read || scopes.write);
    some.ok_or_else(|| known.into())
}

fn parse_paths(body: &Map<String, Value>) -> Result<Vec<AllowedPath>, FieldError> {
    let list = Fields(body).list("allowPaths")?;
    if !(1..=ALLOW_PATHS_MAX).contains(&list.len()) {
        let message = format!("`allowPaths` is a list of 1 to {ALLOW_PATHS_MAX} paths");
        return Err(message.into());
    }
    let parse = |(at, path): (usize, &Value)| {
        let text = path.as_str().ok_or_else(|| format!("`allowPaths[{at}]` must be a string"))?;
        AllowedPath::parse(text).map_err(|error| format!("`allowPaths[{at}]`: {error}"))
    };
    let paths: Result<Vec<_>, String> = list.iter().enumerate().map(parse).collect();
    Ok(paths?)
}

fn parse_limit(body: &Map<String, Value>, name: &str) -> Result<Option<u64>, FieldError> {
    match Fields(body).number(name)? {
        Some(0) => Err(format!("`{name}` must be at least 1").into()),
        limit => Ok(limit),
    }
}

/// In whole seconds, as tokens count.
fn parse_ttl_s(body: &Map<String, Value>, default: u64) -> Result<u64, FieldError> {
    let Some(ttl_ms) = Fields(body).period_ms("ttl")? else { return Ok(default) };
    let ttl_s = ttl_ms / 1_000;
    if !(1..=TOKEN_TTL_SECONDS_MAX).contains(&ttl_s) {
        return Err("`ttl` must be from \"1s\" to \"1h\"".into());
    }
    Ok(ttl_s)
}

fn missing(name: &str) -> FieldError {
    format!("`{name}` is missing").into()
}
