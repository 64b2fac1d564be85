//! The streams that a subscription names: more of them, or one fewer.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_engine::Refused;

use super::{body_of, create, stream_named};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::Error;
use crate::http::query;
use crate::http::reply::{self, Reply};
use crate::wakes::fields::{self, Fields, Wrong};

/// `POST subscriptions/:id/streams`
pub(super) async fn add(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let body = body_of(server, &parts, body).await?;
    let body = fields::object(&body.bytes).map_err(Error::Subscription)?;
    let fields = Fields(&body);
    let streams = create::streams(&fields).and_then(|streams| {
        let missing = || -> Wrong { "`streams` must name at least one stream".into() };
        (!streams.is_empty()).then_some(streams).ok_or_else(missing)
    });
    let streams = streams.map_err(Error::Subscription)?;
    server.engine.edit_streams(&caller.tenant, id, streams, None).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// `DELETE subscriptions/:id/streams/:path`, whose slashes may be encoded or not.
pub(super) async fn remove(
    server: &Server,
    caller: &Caller,
    id: &str,
    path: &str,
) -> Result<Reply, Error> {
    let path = stream_named("path", &query::decode_path(path)).map_err(Error::Subscription)?;
    match server.engine.edit_streams(&caller.tenant, id, Vec::new(), Some(path)).await {
        Err(failure) if failure != Refused::NotFound.into() => Err(failure.into()),
        // Nobody is told of the stream by a subscription that is not there either.
        _ => Ok(reply::status(StatusCode::NO_CONTENT)),
    }
}
