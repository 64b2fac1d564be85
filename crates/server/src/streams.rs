//! The Durable Streams face: one module per thing that can be asked of a stream.

mod append;
mod compress;
mod create;
mod delete;
mod etag;
mod framing;
pub(crate) mod headers;
mod long_poll;
mod read;
mod sse;

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::StreamPath;

use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::Error;
use crate::http::reply::Reply;

/// Answers a request for a stream.
pub(crate) async fn answer(
    server: &Server,
    caller: &Caller,
    path: &StreamPath,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let writes = matches!(*request.method(), Method::PUT | Method::POST | Method::DELETE);
    if writes && path.is_internal() {
        return Err(Error::Internal);
    }
    match *request.method() {
        Method::POST => append::answer(server, caller, path, request).await,
        Method::GET => read::answer(server, caller, path, &request).await,
        Method::PUT => create::answer(server, caller, path, request).await,
        Method::HEAD => read::head(server, caller, path),
        Method::DELETE => delete::answer(server, caller, path).await,
        _ => Err(Error::Method {
            method: request.method().clone(),
            allowed: "GET, POST, PUT, DELETE, HEAD, OPTIONS",
        }),
    }
}
