//! Who belongs to a garden: added, listed and removed by those who say so.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::fact::EntityUri;
use reveille_core::fact::garden::GardenRole;
use reveille_engine::facts::MemberView;
use serde_json::{Value, json};

use super::body::{Body, page_limit};
use super::error::Error;
use super::garden::parse_slug;
use super::principal_of;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::page::{PAGE, Page};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// `POST /v1/gardens/{slug}/members`
pub(super) async fn add(
    server: &Server,
    caller: &Caller,
    slug: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let known = ["entity_uri", "role"];
    let body = Body::read(server, caller, request, "invalid_member", &known).await?;
    let entity = body.entity("entity_uri")?;
    let role = GardenRole::parse(body.required("role")?).map_err(|why| body.invalid(why))?;
    let (engine, principal) = (caller.engine(server), principal_of(caller));
    let member = engine.add_member(&caller.tenant, &principal, &slug, entity, role).await?;
    Ok(reply::json(StatusCode::CREATED, &member_json(server, &member)))
}

/// `GET /v1/gardens/{slug}/members?limit=&after=`
pub(super) async fn list(
    server: &Server,
    caller: &Caller,
    slug: &str,
    query: &Query,
) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let limit = page_limit(query, (PAGE, PAGE))?;
    let after = query.get("after")?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "members").await?;
    let mut take = |member: &MemberView| page.push(&member_json(server, member));
    let principal = principal_of(caller);
    let next =
        server.engine.members(&caller.tenant, &principal, &slug, after, limit, &mut take).await?;
    Ok(page.finish_with_next(next))
}

/// `DELETE /v1/gardens/{slug}/members/{entity_uri}`
pub(super) async fn remove(
    server: &Server,
    caller: &Caller,
    slug: &str,
    entity: &str,
) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let entity = EntityUri::parse(entity).map_err(|_| Error::member_not_found())?;
    let (engine, principal) = (caller.engine(server), principal_of(caller));
    engine.remove_member(&caller.tenant, &principal, &slug, &entity).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

fn member_json(server: &Server, member: &MemberView) -> Value {
    json!({
        "entity_uri": member.entity.as_str(),
        "role": member.role.as_str(),
        "added_at": server.engine.date_of(member.added_at).0,
    })
}
