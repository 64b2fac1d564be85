//! Signatures of sensitive changes, with the caller's own key (AUD-3).
//!
//! The server keeps a hash of a key and no key: what verifies is the one that came with the request.
//! So a signature says that whoever has the key has seen this body, and that nobody between them and
//! the server has put another in its place.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use reveille_core::trigger::signature::{ADMIN_HEADER, TriggerSignatureError, verify};

use super::body::ReadRequest;
use super::error::Error;
use crate::Server;
use crate::http::auth::{Caller, bearer_token};

/// Checks the signature of a request, which a sensitive change has. One that is there is right, even
/// where nobody asks for it. On a server without keys there is nothing to sign with.
pub(super) fn check(
    server: &Server,
    caller: &Caller,
    request: &ReadRequest,
    is_sensitive: bool,
) -> Result<(), Error> {
    if !caller.needs_keys() {
        return Ok(());
    }
    let Some(header) = header(&request.headers) else {
        let required = TriggerSignatureError::Required;
        return if is_sensitive { Err(required.into()) } else { Ok(()) };
    };
    let key = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = key.and_then(bearer_token).ok_or(TriggerSignatureError::Mismatch)?;
    let now = server.engine.date_of(server.engine.clock().now());
    verify([key], Some(header), &request.body.bytes, now.0 / 1_000)?;
    Ok(())
}

/// A header that is no text is one that does not verify.
fn header(headers: &HeaderMap) -> Option<&str> {
    headers.get(ADMIN_HEADER).map(|value| value.to_str().unwrap_or("?"))
}
