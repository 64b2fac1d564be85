//! How far the triggers of tenants have come in their changes (CHK-1). Nothing is to be set there:
//! matching is a part of the write, and what lags is the telling of changes that are for many.

use http::Request;
use hyper::body::Incoming;
use reveille_core::Tenant;
use serde_json::json;

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::http::route::check_read_method;

/// `GET /admin/v1/checkpoints/trigger_evaluator?tenant=&after=&limit=`
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    request: &Request<Incoming>,
) -> Result<Reply, Error> {
    check_read_method(request.method())?;
    let query = Query::parse(request.uri().query());
    query.check_known(&["tenant", "after", "limit"])?;
    let named = query.get("tenant")?.map(Tenant::parse).transpose();
    let named = named.map_err(|error| RequestError::Query(format!("`tenant`: {error}")))?;
    let tenants = match named {
        Some(named) => vec![super::create::tenant_of(caller, Some(named))?],
        None if caller.sees_all() => server.engine.tenants_with_triggers(),
        None => vec![caller.tenant.clone()],
    };
    let (limit, after) = (page_limit(&query)?, query.get("after")?);
    let mut page = Page::begin(&server.engine, &caller.tenant, "checkpoints").await?;
    let mut last: Option<&Tenant> = None;
    let mut next = None;
    let tenants = tenants.iter().filter(|it| after.is_none_or(|after| it.as_str() > after));
    for (tenant, taken) in tenants.zip(0..) {
        let position = server.engine.trigger_position(tenant)?;
        let entry = json!({
            "tenant": tenant.as_str(),
            "token": position.told.to_string(),
            "head": position.head,
            "lag": position.head.saturating_sub(position.told),
            "waitingSince":
                position.waiting_since.map(|at| server.engine.date_of(at).to_rfc3339()),
        });
        if taken == limit || !page.push(&entry) {
            next = last.map(|last| last.as_str().to_owned());
            break;
        }
        last = Some(tenant);
    }
    Ok(page.finish_with_next(next))
}
