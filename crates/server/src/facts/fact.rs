//! Facts: said, and looked at by whoever may.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Millis;
use reveille_core::fact::access::may_read;
use reveille_core::fact::garden::{GardenRole, GardenSlug};
use reveille_core::fact::statement::{Confidence, Statement};
use reveille_core::fact::value::{FactValue, ValueKind};
use reveille_core::fact::{EntityUri, FactNo, Scope};
use reveille_engine::facts::FactFilter;
use serde_json::{Map, Value};

use super::body::{Body, page_limit};
use super::error::Error;
use super::fact_caller;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};
use crate::http::trace;

/// What can be said of a fact.
const FIELDS: &[&str] =
    &["entity", "relation", "value", "source", "confidence", "scope", "garden_id", "valid_until"];

/// Facts of a page, unless the caller says otherwise, and at most.
const PAGE: (usize, usize) = (100, 500);

/// `POST /v1/facts`
pub(super) async fn assert(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let parent = trace::parent(request.headers());
    let body = Body::read(server, caller, request, "invalid_fact", FIELDS).await?;
    let by = fact_caller(caller);
    let statement = parse(&body, &by.principal.entity)?;
    let fact = server.engine.assert_fact(&by, statement, parent).await?;
    let member = fact.garden.map(|_| Some(GardenRole::Writer));
    if may_read(&by.principal, fact.said.scope, member) {
        return Ok(reply::json(StatusCode::CREATED, &fact));
    }
    // Whether others say something else is for those who may read it.
    let mut shown = serde_json::to_value(&fact).unwrap_or_default();
    if let Some(contradicted) = shown.get_mut("contradicted") {
        *contradicted = Value::Null;
    }
    Ok(reply::json(StatusCode::CREATED, &shown))
}

/// What is said, and by default by whoever asks.
fn parse(body: &Body, asker: &EntityUri) -> Result<Statement, Error> {
    let confidence = match body.get("confidence") {
        None => Confidence::CERTAIN,
        Some(value) => {
            let confidence = Confidence::new(value.as_f64().unwrap_or(f64::NAN));
            confidence.map_err(|why| body.invalid(why))?
        }
    };
    let value = match body.get("value") {
        // What is taken back is whatever was said.
        None if confidence == Confidence::NONE => FactValue::new(ValueKind::Null, &Value::Null),
        None => {
            let why = "`value` is missing: an object such as {\"type\": \"string\", \"v\": \"x\"}";
            return Err(body.invalid(why));
        }
        Some(value) => {
            let known =
                |object: &Map<String, Value>| object.keys().all(|it| it == "type" || it == "v");
            let object = value.as_object().filter(|object| known(object));
            let why = "`value` is an object with `type` and `v`, and nothing else";
            let object = object.ok_or_else(|| body.invalid(why))?;
            let kind = object.get("type").and_then(Value::as_str).unwrap_or_default();
            let kind = ValueKind::parse(kind).map_err(|why| body.invalid(why))?;
            FactValue::new(kind, object.get("v").unwrap_or(&Value::Null))
        }
    };
    let valid_until = body.text("valid_until")?.map(Millis::parse_rfc3339);
    if valid_until == Some(None) {
        return Err(body.invalid("`valid_until` is a time like \"2026-01-31T12:00:00Z\""));
    }
    let statement = Statement {
        entity: body.entity("entity")?,
        relation: body.required("relation")?.into(),
        value: value.map_err(|why| body.invalid(why))?,
        source: body.text("source")?.unwrap_or(asker.as_str()).into(),
        confidence,
        scope: body.scope()?,
        garden: body.garden("garden_id")?,
        valid_until: valid_until.flatten(),
    };
    statement.check().map_err(|why| body.invalid(why))?;
    Ok(statement)
}

/// `GET /v1/facts/{id}`
pub(super) fn one(server: &Server, caller: &Caller, id: &str) -> Result<Reply, Error> {
    let no = FactNo::parse(id).ok_or_else(Error::fact_not_found)?;
    let fact = server.engine.fact(&fact_caller(caller), no)?;
    Ok(reply::json(StatusCode::OK, &fact))
}

/// `GET /v1/facts?entity=&relation=&scope=&garden_id=&live=&limit=&cursor=`: those that the caller
/// may read, oldest first; those of an entity by relation.
pub(super) async fn query(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    let wrong = |name: &str, why: &dyn std::fmt::Display| {
        Error::from(RequestError::Query(format!("`{name}`: {why}")))
    };
    let entity = query.get("entity")?.map(EntityUri::parse).transpose();
    let scope = query.get("scope")?.map(Scope::parse).transpose();
    let garden = query.get("garden_id")?.map(GardenSlug::parse_id).transpose();
    let filter = FactFilter {
        entity: entity.map_err(|why| wrong("entity", &why))?,
        relation: query.get("relation")?.map(Into::into),
        scope: scope.map_err(|why| wrong("scope", &why))?,
        garden: garden.map_err(|why| wrong("garden_id", &why))?,
        live: match query.get("live")? {
            None | Some("false") => false,
            Some("true") => true,
            Some(_) => return Err(wrong("live", &"it is true or false")),
        },
    };
    let cursor = query.get("cursor")?.map(str::to_owned);
    let limit = page_limit(query, PAGE)?;
    let mut page = Page::begin_data(&server.engine, &caller.tenant, "facts").await?;
    let found = server.engine.facts(&fact_caller(caller), filter, limit, cursor).await?;
    for fact in &found.facts {
        page.push(fact);
    }
    let mut fields = Map::new();
    fields.insert("cursor".into(), found.next.into());
    Ok(page.finish(StatusCode::OK, &fields))
}
