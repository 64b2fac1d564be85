//! Gardens: made, looked at and deleted.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::fact::garden::{GardenSlug, check_name};
use reveille_engine::facts::{GardenView, NewGarden};
use serde_json::{Value, json};

use super::body::{Body, page_limit};
use super::error::Error;
use super::principal_of;
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
    let new = NewGarden { name: name.into(), scope: body.scope()?, slug };
    let (engine, principal) = (caller.engine(server), principal_of(caller));
    let garden = engine.create_garden(&caller.tenant, &principal, new).await?;
    Ok(reply::json(StatusCode::CREATED, &garden_json(server, &garden)))
}

/// `GET /v1/gardens?limit=&after=`: those that the caller belongs to.
pub(super) async fn list(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    let limit = page_limit(query, (PAGE, PAGE))?;
    let after = query.get("after")?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "gardens").await?;
    let mut take = |garden: &GardenView| page.push(&garden_json(server, garden));
    let principal = principal_of(caller);
    let next = server.engine.gardens(&caller.tenant, &principal, after, limit, &mut take).await?;
    Ok(page.finish_with_next(next))
}

/// `GET /v1/gardens/{slug}`
pub(super) async fn show(server: &Server, caller: &Caller, slug: &str) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let garden = server.engine.garden(&caller.tenant, &principal_of(caller), &slug).await?;
    Ok(reply::json(StatusCode::OK, &garden_json(server, &garden)))
}

/// `DELETE /v1/gardens/{slug}`
pub(super) async fn delete(server: &Server, caller: &Caller, slug: &str) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let engine = caller.engine(server);
    engine.delete_garden(&caller.tenant, &principal_of(caller), &slug).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// A garden by its name in a path; what cannot be one is none.
pub(super) fn parse_slug(text: &str) -> Result<GardenSlug, Error> {
    GardenSlug::parse_id(text).map_err(|_| Error::garden_not_found())
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
        "role": role.map(|role| role.as_str()),
    })
}
