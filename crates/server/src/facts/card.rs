//! Cards: made anew, and looked at.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::fact::card::Card;
use reveille_core::fact::{EntityUri, Scope};
use serde_json::{Value, json};

use super::body::Body;
use super::error::Error;
use super::fact_caller;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// `POST /v1/cards/refresh`
pub(super) async fn refresh(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let known = ["entity", "scope"];
    let body = Body::read(server, caller, request, "invalid_card", &known).await?;
    let (entity, scope) = (body.entity("entity")?, body.scope()?);
    let card = server.engine.refresh_card(&fact_caller(caller), entity, scope).await?;
    Ok(reply::json(StatusCode::OK, &card_json(&card)))
}

/// `GET /v1/cards?entity=&scope=`
pub(super) fn show(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    let wrong = |why: &dyn std::fmt::Display| Error::from(RequestError::Query(why.to_string()));
    let entity = query.get("entity")?.unwrap_or_default();
    let entity = EntityUri::parse(entity).map_err(|why| wrong(&format!("`entity`: {why}")))?;
    let scope = Scope::parse(query.get("scope")?.unwrap_or(Scope::Local.as_str()));
    let scope = scope.map_err(|why| wrong(&format!("`scope`: {why}")))?;
    let card = server.engine.card(&fact_caller(caller), entity, scope)?;
    Ok(reply::json(StatusCode::OK, &card_json(&card)))
}

fn card_json(card: &Card) -> Value {
    json!({
        "entity": card.entity.as_str(),
        "scope": card.scope.as_str(),
        "summary": card.summary,
        "fact_count": card.fact_count,
        "refreshed_at": card.refreshed_at.0,
        "hlc": card.hlc.to_string(),
    })
}
