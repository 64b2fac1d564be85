//! Gardens: made, looked at and deleted.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::fact::garden::{GardenRole, GardenSlug, check_name};
use reveille_engine::facts::GardenView;
use serde_json::{Value, json};

use super::body::{Body, page_limit};
use super::error::Error;
use super::fact_caller;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::page::{PAGE, Page};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// `POST /v1/gardens`
pub(super) async fn create(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let known = ["slug", "name", "scope"];
    let body = Body::read(server, caller, request, "invalid_garden", &known).await?;
    let slug = GardenSlug::parse(body.required("slug")?).map_err(|why| body.invalid(why))?;
    let name = body.text("name")?.unwrap_or(slug.as_str());
    check_name(name).map_err(|why| body.invalid(why))?;
    let (name, scope) = (name.into(), body.scope()?);
    let engine = caller.engine(server);
    let garden = engine.create_garden(&fact_caller(caller), slug, name, scope).await?;
    let view = GardenView { garden, role: GardenRole::Admin };
    Ok(reply::json(StatusCode::CREATED, &garden_json(server, &view)))
}

/// `GET /v1/gardens`: those that the caller belongs to, oldest first. Nobody belongs to more than a
/// page holds.
pub(super) async fn list(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    let limit = page_limit(query, (PAGE, PAGE))?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "gardens").await?;
    for garden in server.engine.gardens(&fact_caller(caller))?.iter().take(limit) {
        page.push(&garden_json(server, garden));
    }
    Ok(page.finish_with_next(None::<Value>))
}

/// `GET /v1/gardens/{slug}`
pub(super) fn show(server: &Server, caller: &Caller, slug: &str) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let garden = server.engine.garden(&fact_caller(caller), &slug)?;
    Ok(reply::json(StatusCode::OK, &garden_json(server, &garden)))
}

/// `DELETE /v1/gardens/{slug}`
pub(super) async fn delete(server: &Server, caller: &Caller, slug: &str) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let engine = caller.engine(server);
    engine.delete_garden(&fact_caller(caller), slug).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// A garden by its name in a path; what cannot be one is none.
pub(super) fn parse_slug(text: &str) -> Result<GardenSlug, Error> {
    GardenSlug::parse_id(text).map_err(|_| Error::garden_not_found(text))
}

fn garden_json(server: &Server, view: &GardenView) -> Value {
    let GardenView { garden, role } = view;
    json!({
        "slug": garden.slug.as_str(),
        "name": &*garden.name,
        "scope": garden.scope.as_str(),
        "created_by": garden.created_by.as_str(),
        "created_at": server.engine.date_of(garden.created_at).0,
        "members": garden.members,
        "role": role.as_str(),
    })
}
