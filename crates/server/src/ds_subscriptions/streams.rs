//! The streams that a subscription names: more of them, or one fewer.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_engine::wakes::WakeRejection;

use super::error::Error;
use super::{create, parse_stream, read_body};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::{self, FieldError, Fields};
use crate::http::query;
use crate::http::reply::{self, Reply};

/// `POST subscriptions/:id/streams`
pub(super) async fn add(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let body = read_body(server, &caller.tenant, &parts, body).await?;
    let body = fields::parse_object(&body.bytes)?;
    let streams = create::parse_streams(&Fields(&body))?;
    if streams.is_empty() {
        return Err(FieldError::from("`streams` must name at least one stream").into());
    }
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
    let path = parse_stream("path", &query::decode_path(path))?;
    match server.engine.edit_streams(&caller.tenant, id, Vec::new(), Some(path)).await {
        Err(failure) if failure != WakeRejection::NotFound.into() => Err(failure.into()),
        // Nobody is told of the stream by a subscription that is not there either.
        _ => Ok(reply::status(StatusCode::NO_CONTENT)),
    }
}
