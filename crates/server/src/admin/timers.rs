//! Obligations that could not be fulfilled and were set aside: which, and trying them again.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_engine::set_aside::{SetAsideTimer, TimerId};
use serde_json::{Value, json};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Where they are; the rest of the path is the id of one, and what is to be done.
const TIMERS: &str = "/admin/v1/timers";
/// What is shown of what a timer was about.
const NAME_BYTES_MAX: usize = 256;

/// Answers a request about timers that were set aside.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let rest = request.uri().path().strip_prefix(TIMERS).unwrap_or_default();
    let id = rest.strip_prefix('/').and_then(|rest| rest.strip_suffix("/retry"));
    match (id, request.method()) {
        (None, &Method::GET | &Method::HEAD) => list(server, caller, request.uri().query()).await,
        (Some(id), &Method::POST) => retry(server, id).await,
        (id, method) => {
            let allowed = if id.is_some() { "POST, OPTIONS" } else { "GET, HEAD, OPTIONS" };
            Err(RequestError::Method { method: method.clone(), allowed }.into())
        }
    }
}

/// `GET /admin/v1/timers?after=&limit=`
async fn list(server: &Server, caller: &Caller, query: Option<&str>) -> Result<Reply, Error> {
    let query = Query::parse(query);
    query.check_known(&["after", "limit"])?;
    let after = query.get("after")?.map(|text| {
        let message = || RequestError::Query("`after` is the `next` of the page before".into());
        parse_id(text).ok_or_else(message)
    });
    let (after, limit) = (after.transpose()?, page_limit(&query)?);
    let mut page = Page::begin(&server.engine, &caller.tenant, "timers").await?;
    let mut take = |timer: &SetAsideTimer| page.push(&timer_json(server, timer));
    let next = server.engine.set_aside_timers(after, limit, &mut take)?;
    Ok(page.finish_with_next(next.map(|id| write_id(&id))))
}

/// `POST /admin/v1/timers/{id}/retry`
async fn retry(server: &Server, id: &str) -> Result<Reply, Error> {
    let found = match parse_id(id) {
        Some(id) => server.engine.retry_timer(&id).await?,
        None => false,
    };
    if !found {
        return Err(Error::TimerNotFound);
    }
    Ok(reply::json(StatusCode::ACCEPTED, &json!({ "id": id, "state": "due" })))
}

fn timer_json(server: &Server, timer: &SetAsideTimer) -> Value {
    let name = timer.name.get(..NAME_BYTES_MAX).unwrap_or(&timer.name);
    json!({
        "id": write_id(&timer.id),
        "partition": timer.id.partition,
        "due_at": server.engine.date_of(timer.due_at).0,
        "domain": timer.domain,
        "name": name.escape_ascii().to_string(),
    })
}

fn write_id(id: &TimerId) -> String {
    format!("{}-{}", id.partition, URL_SAFE_NO_PAD.encode(&id.key))
}

fn parse_id(text: &str) -> Option<TimerId> {
    let (partition, key) = text.split_once('-')?;
    let key = URL_SAFE_NO_PAD.decode(key).ok()?;
    Some(TimerId { partition: partition.parse().ok()?, key: Bytes::from(key) })
}
