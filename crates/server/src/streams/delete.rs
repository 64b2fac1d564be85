//! `DELETE`: end a stream.

use http::StatusCode;
use reveille_core::StreamPath;

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::reply::{self, Reply};

pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    path: &StreamPath,
) -> Result<Reply, Error> {
    server.engine.delete(&caller.tenant, path).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}
