//! `GET jwks.json`: the keys that webhooks are signed with, for everybody.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::Server;
use crate::http::error::RequestError;
use crate::http::reply::{self, Reply};
use crate::http::route::check_read_method;

pub(crate) fn answer(server: &Server, method: &Method) -> Result<Reply, RequestError> {
    check_read_method(method)?;
    let keys: Vec<Value> = server.engine.published_keys().iter().map(|key| key.jwk()).collect();
    let mut reply = reply::json(StatusCode::OK, &json!({ "keys": keys }));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    Ok(reply)
}
