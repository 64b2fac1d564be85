//! The secrets of a tenant: what signs the deliveries of its triggers (ADM-5).

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::trigger::SecretRef;
use reveille_core::trigger::limits::SECRET_OVERLAP_DAYS_MAX;
use reveille_core::trigger::secret::{OVERLAP_MS, OVERLAP_MS_MAX, SigningSecret};
use reveille_engine::Error as EngineError;
use reveille_engine::triggers::TriggerRejection;
use serde_json::{Map, Value, json};

use super::body::ReadRequest;
use super::error::Error;
use super::signed;
use crate::Server;
use crate::admin::tenant_named;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::FieldError;
use crate::http::page::Page;
use crate::http::query::{Query, decode_path};
use crate::http::reply::{self, Reply};

const TENANTS: &str = "/admin/v1/tenants/";
/// Shorter ones can be guessed.
const SECRET_BYTES_MIN: usize = 24;
/// Longest secret that somebody brings along, in bytes: longer ones are hashed to no more than this.
const SECRET_BYTES_MAX: usize = 256;

/// `/admin/v1/tenants/{tenant}/secrets[/{ref}[/rotate|/revoke-previous]]`
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let path = request.uri().path().to_owned();
    Query::parse(request.uri().query()).check_known(&[])?;
    let mut segments = path.strip_prefix(TENANTS).unwrap_or_default().split('/');
    let tenant = tenant_named(caller, segments.next().unwrap_or_default())?;
    let (name, action) = (segments.nth(1).map(decode_path), segments.next());
    let method = request.method().clone();
    let reads = matches!(method, Method::GET | Method::HEAD);
    let Some(name) = name else {
        if reads {
            return list(server, caller, &tenant).await;
        }
        let allowed = "GET, HEAD, OPTIONS";
        return Err(RequestError::Method { method, allowed }.into());
    };
    let name = SecretRef::parse(&name).map_err(|error| FieldError(error.to_string()))?;
    match (action, &method) {
        (None, &Method::GET | &Method::HEAD) => {
            let found = server.engine.trigger_secret(&tenant, &name)?;
            let found = found.ok_or_else(|| no_secret(&name))?;
            Ok(reply::json(StatusCode::OK, &secret_json(server, &name, &found)))
        }
        (None, &Method::POST) => {
            let request = ReadRequest::read_known(server, caller, request, &["secret"]).await?;
            let engine = signed::engine(server, caller, &request, false)?;
            let value = value(server, &request)?;
            let made = engine.create_trigger_secret(&tenant, &name, &value).await?;
            Ok(shown_once(server, StatusCode::CREATED, &name, &made, value))
        }
        (None, &Method::DELETE) => {
            let request = ReadRequest::read_known(server, caller, request, &[]).await?;
            let engine = signed::engine(server, caller, &request, true)?;
            found(engine.delete_trigger_secret(&tenant, &name).await)?;
            Ok(reply::status(StatusCode::NO_CONTENT))
        }
        (Some("rotate"), &Method::POST) => {
            let known = ["overlap", "secret"];
            let request = ReadRequest::read_known(server, caller, request, &known).await?;
            let engine = signed::engine(server, caller, &request, true)?;
            let overlap_ms = overlap_ms(&request)?;
            let value = value(server, &request)?;
            let rotated = engine.rotate_trigger_secret(&tenant, &name, &value, overlap_ms).await;
            Ok(shown_once(server, StatusCode::OK, &name, &found(rotated)?, value))
        }
        (Some("revoke-previous"), &Method::POST) => {
            let request = ReadRequest::read_known(server, caller, request, &[]).await?;
            let engine = signed::engine(server, caller, &request, true)?;
            let secret = found(engine.revoke_previous_trigger_secret(&tenant, &name).await)?;
            Ok(reply::json(StatusCode::OK, &secret_json(server, &name, &secret)))
        }
        (None, _) => {
            let allowed = "GET, HEAD, POST, DELETE, OPTIONS";
            Err(RequestError::Method { method, allowed }.into())
        }
        (Some(_), _) => Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into()),
    }
}

async fn list(
    server: &Server,
    caller: &Caller,
    tenant: &reveille_core::Tenant,
) -> Result<Reply, Error> {
    let mut page = Page::begin(&server.engine, &caller.tenant, "secrets").await?;
    for view in server.engine.trigger_secrets(tenant)? {
        if let Ok(name) = SecretRef::parse(&view.name) {
            page.push(&secret_json(server, &name, &view.secret));
        }
    }
    Ok(page.finish(StatusCode::OK, &Map::new()))
}

/// Where a secret is what is asked for, none is no conflict.
fn found<T>(result: Result<T, reveille_engine::triggers::TriggerError>) -> Result<T, Error> {
    match result {
        Err(EngineError::Rejected(TriggerRejection::NoSecret { name })) => {
            Err(Error::SecretNotFound(name))
        }
        result => Ok(result?),
    }
}

fn no_secret(name: &SecretRef) -> Error {
    Error::SecretNotFound(name.as_str().into())
}

/// What signs: the value that somebody brings along, or a new one.
fn value(server: &Server, request: &ReadRequest) -> Result<String, FieldError> {
    if let Some(value) = request.fields().text("secret")? {
        let is_long_enough = (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&value.len());
        if !is_long_enough || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "`secret` is {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} printable characters of ASCII, \
                 without spaces; leave it out to have one made"
            )
            .into());
        }
        return Ok(value.to_owned());
    }
    let mut bytes = [0; 32];
    server.engine.entropy().fill(&mut bytes);
    Ok(format!("whsec_{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

fn overlap_ms(request: &ReadRequest) -> Result<u64, FieldError> {
    let overlap_ms = request.fields().period_ms("overlap")?.unwrap_or(OVERLAP_MS);
    if overlap_ms > OVERLAP_MS_MAX {
        return Err(format!("`overlap` is at most \"{SECRET_OVERLAP_DAYS_MAX}d\"").into());
    }
    Ok(overlap_ms)
}

/// With the value, which can be read now and never again (SEC-4).
fn shown_once(
    server: &Server,
    status: StatusCode,
    name: &SecretRef,
    secret: &SigningSecret,
    value: String,
) -> Reply {
    let mut body = secret_json(server, name, secret);
    if let Value::Object(fields) = &mut body {
        fields.insert("secret".into(), value.into());
    }
    reply::json(status, &body)
}

fn secret_json(server: &Server, name: &SecretRef, secret: &SigningSecret) -> Value {
    let date = |at| server.engine.date_of(at).to_rfc3339();
    let previous = secret.previous_at(server.engine.clock().now()).map(|previous| {
        json!({
            "prefix": &*previous.version.prefix,
            "createdAt": date(previous.version.created_at),
            "validUntil": date(previous.valid_until),
        })
    });
    json!({
        "secretsRef": name.as_str(),
        "prefix": &*secret.current.prefix,
        "createdAt": date(secret.current.created_at),
        "previous": previous,
    })
}
