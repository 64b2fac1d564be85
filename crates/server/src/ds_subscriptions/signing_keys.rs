//! `GET jwks.json`: the keys that webhooks are signed with, for everybody.

use http::Method;
use serde_json::Value;

use crate::Server;
use crate::http::error::RequestError;
use crate::http::reply::{self, Reply};
use crate::http::route::check_read_method;

pub(crate) fn answer(server: &Server, method: &Method) -> Result<Reply, RequestError> {
    check_read_method(method)?;
    let keys: Vec<Value> = server.engine.published_keys().iter().map(|key| key.jwk()).collect();
    Ok(reply::jwk_set(keys))
}
