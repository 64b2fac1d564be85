//! The Durable Streams face: one module per thing that can be asked of a stream.

mod append;
mod compress;
mod create;
mod delete;
mod error;
mod etag;
mod framing;
mod headers;
mod long_poll;
mod read;
mod sse;
mod sse_event;

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::StreamPath;

pub(crate) use self::compress::COMPRESSORS_MAX;
use self::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::reply::Reply;

/// Answers a request for a stream.
pub(crate) async fn answer(
    server: &Server,
    caller: &Caller,
    path: &StreamPath,
    request: Request<Incoming>,
) -> Reply {
    let answer = route(server, caller, path, request).await;
    answer.unwrap_or_else(|error| error.refusal().reply())
}

async fn route(
    server: &Server,
    caller: &Caller,
    path: &StreamPath,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let is_write = matches!(*request.method(), Method::PUT | Method::POST | Method::DELETE);
    if is_write && path.is_internal() {
        return Err(Error::ReservedStream);
    }
    match *request.method() {
        Method::POST => append::answer(server, caller, path, request).await,
        Method::GET => read::answer(server, caller, path, &request).await,
        Method::PUT => create::answer(server, caller, path, request).await,
        Method::HEAD => read::head(server, caller, path),
        Method::DELETE => delete::answer(server, caller, path).await,
        _ => Err(RequestError::Method {
            method: request.method().clone(),
            allowed: "GET, POST, PUT, DELETE, HEAD, OPTIONS",
        }
        .into()),
    }
}
