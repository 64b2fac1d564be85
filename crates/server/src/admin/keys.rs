//! Keys: made, listed and revoked by those who manage a tenant, or all of them.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::key::{Access, Key, Permission, Role};
use reveille_core::{Millis, Tenant};
use serde_json::{Map, Value, json};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::{FieldError, Fields};
use crate::http::known::check_fields;
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};
use crate::http::{inbound, moment};

/// Where keys are; the rest of the path is the id of one.
const KEYS: &str = "/admin/v1/keys";

/// What can be said about a new one.
const FIELDS: &[&str] = &["tenant", "roles", "entity_uri", "permissions", "scopes", "description"];

/// Answers a request about keys.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let id = request.uri().path().strip_prefix(KEYS).and_then(|rest| rest.strip_prefix('/'));
    match (id, request.method()) {
        (None, &Method::POST) => {
            Query::parse(request.uri().query()).check_known(&[])?;
            create(server, caller, request).await
        }
        (None, &Method::GET | &Method::HEAD) => list(server, caller, request.uri().query()).await,
        (None, method) => Err(RequestError::Method {
            method: method.clone(),
            allowed: "GET, HEAD, POST, OPTIONS",
        }
        .into()),
        (Some(id), &Method::DELETE) => revoke(server, caller, id).await,
        (Some(_), method) => {
            Err(RequestError::Method { method: method.clone(), allowed: "DELETE, OPTIONS" }.into())
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
    let body = inbound::read_object::<Error>(server, &caller.tenant, &parts.headers, body).await?;
    let access = parse_access(&body)?;
    if !caller.access().manages(&access) {
        return Err(RequestError::Forbidden(
            "an admin makes keys for its own tenant; for another one, or for all of them, it \
             takes an admin key without a tenant",
        )
        .into());
    }
    if !caller.access().covers(&access) {
        return Err(RequestError::Forbidden(
            "no key makes one that may more than itself: name no permissions and no scopes but \
             those of the key that asks",
        )
        .into());
    }
    access.check().map_err(|error| FieldError(error.to_string()))?;
    let (key, text) = caller.engine(server).create_key(access).await?;
    let mut body = key_json(server, &key);
    if let Some(object) = body.as_object_mut() {
        object.insert("key".into(), text.into());
    }
    Ok(reply::json(StatusCode::CREATED, &body))
}

fn parse_access(body: &Map<String, Value>) -> Result<Access, FieldError> {
    check_fields(body, FIELDS)?;
    let fields = Fields(body);
    if !body.contains_key("tenant") {
        return Err("`tenant` is missing; name one, or write null for an admin key of all".into());
    }
    let tenant = fields.text("tenant")?.map(Tenant::parse).transpose();
    let roles = parse_set(&fields, "roles", "\"admin\", \"operator\" or \"user\"", Role::parse)?;
    let permissions =
        parse_set(&fields, "permissions", "\"read\" or \"write\"", Permission::parse)?;
    Ok(Access {
        tenant: tenant.map_err(|error| format!("`tenant`: {error}"))?,
        roles,
        entity_uri: fields.text("entity_uri")?.map(Into::into),
        permissions,
        scopes: parse_set(&fields, "scopes", "strings", |scope| Some(Arc::from(scope)))?,
        description: fields.text("description")?.map(Into::into),
    })
}

/// A list of names, in whatever order.
fn parse_set<T: Ord>(
    fields: &Fields<'_>,
    name: &str,
    known: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<BTreeSet<T>, FieldError> {
    let message = || FieldError(format!("`{name}` must hold {known}"));
    let parse = |item: &Value| item.as_str().and_then(&parse).ok_or_else(message);
    fields.list(name)?.iter().map(parse).collect()
}

/// `GET /admin/v1/keys?tenant=&from=&to=&after=&limit=`: newest first; `from` and `to` are about when a
/// key was made.
async fn list(server: &Server, caller: &Caller, query: Option<&str>) -> Result<Reply, Error> {
    let query = Query::parse(query);
    query.check_known(&["tenant", "from", "to", "after", "limit"])?;
    let tenant = query.get("tenant")?.map(Tenant::parse).transpose();
    let tenant = tenant.map_err(|error| RequestError::Query(format!("`tenant`: {error}")))?;
    let time = |name| {
        Ok::<_, RequestError>(moment::of_query(&query, name)?.map(|it| server.engine.time_of(it)))
    };
    let (from, to) = (time("from")?, time("to")?);
    let after = query.get("after")?.map(parse_place).transpose()?;
    let limit = page_limit(&query)?;
    let access = caller.access();
    let mut page = Page::begin(&server.engine, &caller.tenant, "keys").await?;
    let mut mine = server.engine.keys();
    let place = |key: &Key| (Reverse(key.created_at), key.id.clone());
    mine.retain(|key| {
        after.as_ref().is_none_or(|after| place(key) > *after)
            && access.manages(&key.access)
            && (tenant.is_none() || key.access.tenant == tenant)
            && from.is_none_or(|from| from <= key.created_at)
            && to.is_none_or(|to| key.created_at < to)
    });
    mine.sort_by_cached_key(|key| place(key));
    let taken = mine.iter().take(limit).take_while(|key| page.push(&key_json(server, key))).count();
    let last = mine.get(..taken).and_then(|taken| taken.last());
    let next = last.filter(|_| taken < mine.len());
    Ok(page.finish_with_next(next.map(|key| format!("{}-{}", key.created_at.0, key.id))))
}

/// A key's place among all, newest first.
type Place = (Reverse<Millis>, Arc<str>);

fn parse_place(text: &str) -> Result<Place, RequestError> {
    let parts = text.split_once('-').and_then(|(at, id)| Some((at.parse().ok()?, id)));
    let (at, id) = parts.ok_or_else(|| {
        RequestError::Query("`after` is the `next` of the page before".to_owned())
    })?;
    Ok((Reverse(Millis(at)), id.into()))
}

/// `DELETE /admin/v1/keys/{id}`
async fn revoke(server: &Server, caller: &Caller, id: &str) -> Result<Reply, Error> {
    // A key of another tenant is as good as none.
    let found = server.engine.key(id).filter(|key| caller.access().manages(&key.access));
    let found = found.ok_or(Error::KeyNotFound)?;
    if caller.engine(server).revoke_key(&found.id).await? {
        Ok(reply::status(StatusCode::NO_CONTENT))
    } else {
        Err(Error::KeyNotFound)
    }
}

fn key_json(server: &Server, key: &Key) -> Value {
    let Access { tenant, roles, entity_uri, permissions, scopes, description } = &key.access;
    json!({
        "id": &*key.id,
        "tenant": tenant.as_ref().map(Tenant::as_str),
        "roles": roles.iter().map(|role| role.as_str()).collect::<Vec<_>>(),
        "entity_uri": entity_uri.as_deref(),
        "permissions": permissions.iter().map(|it| it.as_str()).collect::<Vec<_>>(),
        "scopes": scopes.iter().map(AsRef::as_ref).collect::<Vec<&str>>(),
        "description": description.as_deref(),
        "created_at": server.engine.date_of(key.created_at).0,
    })
}
