//! The keys that webhooks and tokens of triggers are signed with, replaced by the operator.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::trigger::token::TriggerKey;
use reveille_engine::keyring::KeySet;
use serde_json::{Map, Value, json};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::{FieldError, Fields};
use crate::http::inbound;
use crate::http::known::check_fields;
use crate::http::reply::{self, Reply};

/// How long a key that signs no longer is published, unless the operator says otherwise.
const OVERLAP_MS_DEFAULT: u64 = 86_400_000;
const OVERLAP_MS_MAX: u64 = 30 * 86_400_000;

/// `POST /admin/v1/signing-keys/rotate`
pub(super) async fn rotate(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let (tenant, headers) = (&caller.tenant, &parts.headers);
    let body = inbound::read_optional_object::<Error>(server, tenant, headers, body).await?;
    check_fields(&body, &["overlap", "keys"])?;
    let set = match Fields(&body).text("keys")? {
        None | Some("webhooks") => KeySet::Webhooks,
        Some("triggers") => KeySet::Triggers,
        Some(_) => {
            return Err(FieldError::from("`keys` must be \"webhooks\" or \"triggers\"").into());
        }
    };
    let overlap_ms = parse_overlap_ms(&body)?;
    let engine = &server.engine;
    let key = caller.engine(server).rotate_signing_key(set, overlap_ms).await?;
    let (kid, published): (String, Vec<String>) = match set {
        KeySet::Webhooks => {
            let published = engine.published_keys();
            (key.kid().into(), published.iter().map(|key| key.kid().into()).collect())
        }
        KeySet::Triggers => {
            let published = engine.trigger_keys();
            let kid = TriggerKey::new(key).kid().into();
            (kid, published.iter().map(|key| key.kid().into()).collect())
        }
    };
    let body = json!({ "kid": kid, "published": published, "overlap_ms": overlap_ms });
    Ok(reply::json(StatusCode::OK, &body))
}

fn parse_overlap_ms(body: &Map<String, Value>) -> Result<u64, FieldError> {
    let overlap_ms = Fields(body).period_ms("overlap")?.unwrap_or(OVERLAP_MS_DEFAULT);
    if overlap_ms > OVERLAP_MS_MAX {
        return Err("`overlap` must be at most \"30d\"".into());
    }
    Ok(overlap_ms)
}
