//! The keys that webhooks are signed with, replaced by the operator.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use serde_json::json;

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::{self, FieldError, Fields};
use crate::http::inbound;
use crate::http::known::check_fields;
use crate::http::reply::{self, Reply};

/// How long a key that signs no longer is published, unless the operator says otherwise.
const OVERLAP_MS_DEFAULT: u64 = 86_400_000;
const OVERLAP_MS_MAX: u64 = 30 * 86_400_000;
/// A body larger than this asks for nothing that can be had.
const BODY_BYTES_MAX: usize = 64 << 10;

/// `POST /admin/v1/signing-keys/rotate`
pub(super) async fn rotate(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let max = BODY_BYTES_MAX.min(server.config.max_body_bytes);
    let body = inbound::read(&server.engine, &caller.tenant, &parts.headers, body, max).await?;
    let overlap_ms = parse_overlap_ms(&body.bytes)?;
    let key = caller.engine(server).rotate_signing_key(overlap_ms).await?;
    let published = server.engine.published_keys();
    let body = json!({
        "kid": key.kid(),
        "published": published.iter().map(|key| key.kid()).collect::<Vec<_>>(),
        "overlap_ms": overlap_ms,
    });
    Ok(reply::json(StatusCode::OK, &body))
}

fn parse_overlap_ms(body: &[u8]) -> Result<u64, FieldError> {
    if body.is_empty() {
        return Ok(OVERLAP_MS_DEFAULT);
    }
    let body = fields::parse_object(body)?;
    check_fields(&body, &["overlap"])?;
    let overlap_ms = Fields(&body).period_ms("overlap")?.unwrap_or(OVERLAP_MS_DEFAULT);
    if overlap_ms > OVERLAP_MS_MAX {
        return Err("`overlap` must be at most \"30d\"".into());
    }
    Ok(overlap_ms)
}
