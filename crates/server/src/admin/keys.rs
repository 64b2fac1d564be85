//! Keys: made, listed and revoked by those who manage a tenant, or all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::key::{Access, Key, Permission, Role};
use serde_json::{Map, Value, json};

use super::limit;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::Error;
use crate::http::inbound;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};
use crate::wakes::fields::{self, Fields, Wrong};

/// Where keys are; the rest of the path is the id of one.
const KEYS: &str = "/admin/v1/keys";
/// A body larger than this asks for nothing that can be had.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Answers a request about keys.
pub(crate) async fn answer(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let id = request.uri().path().strip_prefix(KEYS).and_then(|rest| rest.strip_prefix('/'));
    match (id, request.method()) {
        (None, &Method::POST) => create(server, caller, request).await,
        (None, &Method::GET | &Method::HEAD) => list(server, caller, request.uri().query()),
        (None, method) => {
            Err(Error::Method { method: method.clone(), allowed: "GET, HEAD, POST, OPTIONS" })
        }
        (Some(id), &Method::DELETE) => revoke(server, caller, id).await,
        (Some(_), method) => {
            Err(Error::Method { method: method.clone(), allowed: "DELETE, OPTIONS" })
        }
    }
}

/// `POST /admin/v1/keys`
async fn create(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let max = BODY_BYTES_MAX.min(server.config.max_body_bytes);
    let body = inbound::read(&server.engine, &parts.headers, body, max).await?;
    let body = fields::object(&body.bytes).map_err(Error::Subscription)?;
    let access = wanted(&body).map_err(Error::Subscription)?;
    if !caller.access().manages(&access) {
        return Err(Error::Forbidden(
            "an admin makes keys for its own tenant; for another one, or for all of them, it \
             takes an admin key without a tenant",
        ));
    }
    access.check().map_err(|error| Error::Subscription(error.to_string()))?;
    let (key, text) = server.engine.create_key(access).await?;
    let mut body = item(&key);
    if let Some(object) = body.as_object_mut() {
        object.insert("key".into(), text.into());
    }
    Ok(reply::json(StatusCode::CREATED, &body))
}

fn wanted(body: &Map<String, Value>) -> Result<Access, Wrong> {
    let fields = Fields(body);
    if !body.contains_key("tenant") {
        return Err("`tenant` is missing; name one, or write null for an admin key of all".into());
    }
    let tenant = fields.text("tenant")?.map(Tenant::parse).transpose();
    let roles = set(&fields, "roles", "\"admin\", \"operator\" or \"user\"", Role::parse)?;
    let permissions = set(&fields, "permissions", "\"read\" or \"write\"", Permission::parse)?;
    Ok(Access {
        tenant: tenant.map_err(|error| format!("`tenant`: {error}"))?,
        roles,
        entity_uri: fields.text("entity_uri")?.map(Into::into),
        permissions,
        scopes: set(&fields, "scopes", "strings", |scope| Some(Arc::from(scope)))?,
        description: fields.text("description")?.map(Into::into),
    })
}

/// A list of names, in whatever order.
fn set<T: Ord>(
    fields: &Fields<'_>,
    name: &str,
    known: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<BTreeSet<T>, Wrong> {
    let wrong = || format!("`{name}` must hold {known}");
    let one = |item: &Value| item.as_str().and_then(&parse).ok_or_else(wrong);
    fields.list(name)?.iter().map(one).collect()
}

/// `GET /admin/v1/keys?after=&limit=`
fn list(server: &Server, caller: &Caller, query: Option<&str>) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let (after, limit) = (query.get("after")?.unwrap_or_default(), limit(&query)?);
    let access = caller.access();
    let mut mine = server.engine.keys();
    mine.retain(|key| &*key.id > after && access.manages(&key.access));
    let more = mine.len() > limit;
    mine.truncate(limit);
    let mut body = json!({ "keys": mine.iter().map(|key| item(key)).collect::<Vec<_>>() });
    if let (true, Some(last), Some(object)) = (more, mine.last(), body.as_object_mut()) {
        object.insert("next".into(), last.id.as_ref().into());
    }
    Ok(reply::json(StatusCode::OK, &body))
}

/// `DELETE /admin/v1/keys/{id}`: nobody is let in by it any more.
async fn revoke(server: &Server, caller: &Caller, id: &str) -> Result<Reply, Error> {
    // A key of another tenant is as good as none.
    let found = server.engine.key(id).filter(|key| caller.access().manages(&key.access));
    let found = found.ok_or(Error::NoSuchKey)?;
    if server.engine.revoke_key(&found.id).await? {
        Ok(reply::status(StatusCode::NO_CONTENT))
    } else {
        Err(Error::NoSuchKey)
    }
}

fn item(key: &Key) -> Value {
    let Access { tenant, roles, entity_uri, permissions, scopes, description } = &key.access;
    json!({
        "id": &*key.id,
        "tenant": tenant.as_ref().map(Tenant::as_str),
        "roles": roles.iter().map(|role| role.as_str()).collect::<Vec<_>>(),
        "entity_uri": entity_uri.as_deref(),
        "permissions": permissions.iter().map(|it| it.as_str()).collect::<Vec<_>>(),
        "scopes": scopes.iter().map(AsRef::as_ref).collect::<Vec<&str>>(),
        "description": description.as_deref(),
        "created_at": key.created_at.0,
    })
}
