//! Signatures of sensitive changes, with the caller's own key (AUD-3).
//!
//! The server keeps a hash of a key and no key: what verifies is the one that came with the request.
//! So a signature says that whoever has the key has seen this body, and that nobody between them and
//! the server has put another in its place.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use reveille_core::audit::Actor;
use reveille_core::trigger::signature::{ADMIN_HEADER, TriggerSignatureError, verify};
use reveille_engine::Engine;

use super::body::ReadRequest;
use super::error::Error;
use crate::Server;
use crate::http::auth::{Caller, bearer_token};

/// The engine on behalf of a caller, whose request is signed if it is sensitive: what it changes is
/// written down as signed. A signature that is there is right, even where nobody asks for it. On a
/// server without keys there is nothing to sign with.
pub(super) fn engine(
    server: &Server,
    caller: &Caller,
    request: &ReadRequest,
    is_sensitive: bool,
) -> Result<Engine, Error> {
    let header = header(&request.headers).filter(|_| caller.needs_keys());
    let Some(header) = header else {
        return match is_sensitive && caller.needs_keys() {
            true => Err(TriggerSignatureError::Required.into()),
            false => Ok(caller.engine(server)),
        };
    };
    let key = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = key.and_then(bearer_token).ok_or(TriggerSignatureError::Mismatch)?;
    let now = server.engine.date_of(server.engine.clock().now());
    verify([key], Some(header), &request.body.bytes, now.0 / 1_000)?;
    Ok(server.engine.acting_as(Actor { has_signed: true, ..caller.actor() }))
}

/// A header that is no text is one that does not verify.
fn header(headers: &HeaderMap) -> Option<&str> {
    headers.get(ADMIN_HEADER).map(|value| value.to_str().unwrap_or("?"))
}
