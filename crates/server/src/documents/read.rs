//! Reading one document.

use http::StatusCode;
use reveille_core::document::path::DocumentPath;

use super::document_caller;
use super::error::Error;
use super::shape::document_reply;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::reply::Reply;

/// `GET /api/v1/{document}`
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    path: &DocumentPath,
) -> Result<Reply, Error> {
    let engine = &server.engine;
    let document = engine.document(&document_caller(caller), path).await?;
    Ok(document_reply(engine, &caller.tenant, StatusCode::OK, path, &document))
}
