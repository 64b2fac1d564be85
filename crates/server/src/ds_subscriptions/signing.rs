//! The keys that webhooks are signed with: published for everybody, and replaced by the operator.

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::body_of;
use crate::Server;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::wakes::fields::{self, Fields};

/// How long a key that signs no longer is published, unless the operator says otherwise.
const OVERLAP_MS_DEFAULT: u64 = 86_400_000;
/// And at most.
const OVERLAP_MS_MAX: u64 = 30 * 86_400_000;

/// `GET jwks.json`
pub(super) fn published(server: &Server) -> Reply {
    let keys: Vec<Value> = server.engine.published_keys().iter().map(|key| key.jwk()).collect();
    let mut reply = reply::json(StatusCode::OK, &json!({ "keys": keys }));
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    reply
}

/// `POST /admin/v1/signing-keys/rotate`
pub(crate) async fn rotate(server: &Server, request: Request<Incoming>) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let body = body_of(server, &parts, body).await?;
    let overlap_ms = overlap_ms(&body.bytes).map_err(Error::Subscription)?;
    let key = server.engine.rotate_signing_key(overlap_ms).await?;
    let published = server.engine.published_keys();
    let body = json!({
        "kid": key.kid(),
        "published": published.iter().map(|key| key.kid()).collect::<Vec<_>>(),
        "overlap_ms": overlap_ms,
    });
    Ok(reply::json(StatusCode::OK, &body))
}

fn overlap_ms(body: &[u8]) -> Result<u64, fields::Wrong> {
    if body.is_empty() {
        return Ok(OVERLAP_MS_DEFAULT);
    }
    let body = fields::object(body)?;
    let asked = Fields(&body).period_ms("overlap")?.unwrap_or(OVERLAP_MS_DEFAULT);
    if asked > OVERLAP_MS_MAX {
        return Err("`overlap` must be at most \"30d\"".into());
    }
    Ok(asked)
}
