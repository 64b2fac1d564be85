//! Who belongs to a garden: added, listed and removed by those who say so.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Millis;
use reveille_core::fact::EntityUri;
use reveille_core::fact::garden::{GardenRole, MemberSpan, Membership};
use reveille_engine::facts::MemberView;
use serde_json::{Value, json};

use super::body::{Body, page_limit};
use super::error::Error;
use super::fact_caller;
use super::garden::parse_slug;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Members of a page, unless the caller says otherwise, and at most.
const PAGE: (usize, usize) = (500, 500);

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
    let (engine, by) = (caller.engine(server), fact_caller(caller));
    let member = engine.grant_garden_role(&by, slug, entity, role, true).await?;
    Ok(reply::json(StatusCode::CREATED, &member_json(server, &member)))
}

/// `PUT /v1/gardens/{slug}/members/{entity_uri}`: a member gets another role.
pub(super) async fn change(
    server: &Server,
    caller: &Caller,
    (slug, entity): (&str, &str),
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let entity = EntityUri::parse(entity).map_err(|_| Error::member_not_found(entity))?;
    let body = Body::read(server, caller, request, "invalid_member", &["role"]).await?;
    let role = GardenRole::parse(body.required("role")?).map_err(|why| body.invalid(why))?;
    let (engine, by) = (caller.engine(server), fact_caller(caller));
    let member = engine.grant_garden_role(&by, slug, entity, role, false).await?;
    Ok(reply::json(StatusCode::OK, &member_json(server, &member)))
}

/// `GET /v1/gardens/{slug}/members?limit=&after=`
pub(super) async fn list(
    server: &Server,
    caller: &Caller,
    slug: &str,
    query: &Query,
) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let limit = page_limit(query, PAGE)?;
    let after = query.get("after")?.map(EntityUri::parse).transpose();
    let after = after
        .map_err(|_| RequestError::Query("`after` is the `next` of the page before".to_owned()))?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "members").await?;
    let by = fact_caller(caller);
    let (members, has_more) = server.engine.garden_members(&by, &slug, after.as_ref(), limit)?;
    let taken = members.iter().take_while(|it| page.push(&member_json(server, it))).count();
    let last = members.get(..taken).and_then(|taken| taken.last());
    let next = last.filter(|_| has_more || taken < members.len());
    Ok(page.finish_with_next(next.map(|it| it.member.as_str().to_owned())))
}

/// `DELETE /v1/gardens/{slug}/members/{entity_uri}`
pub(super) async fn remove(
    server: &Server,
    caller: &Caller,
    slug: &str,
    entity: &str,
) -> Result<Reply, Error> {
    let slug = parse_slug(slug)?;
    let entity = EntityUri::parse(entity).map_err(|_| Error::member_not_found(entity))?;
    let engine = caller.engine(server);
    engine.remove_garden_member(&fact_caller(caller), slug, entity).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// What somebody is in a garden, and what they were: `role` is null for those who belong to it no
/// longer.
fn member_json(server: &Server, view: &MemberView) -> Value {
    let date = |(_, at): (u64, Millis)| server.engine.date_of(at).0;
    let Membership { current, former } = &view.membership;
    let span = |it: &MemberSpan| {
        let (added_at, removed_at) = (date(it.since), date(it.until));
        json!({ "role": it.role.as_str(), "added_at": added_at, "removed_at": removed_at })
    };
    json!({
        "entity_uri": view.member.as_str(),
        "role": current.map(|(role, _)| role.as_str()),
        "added_at": current.map(|(_, since)| date(since)),
        "former": former.iter().map(span).collect::<Vec<_>>(),
    })
}
