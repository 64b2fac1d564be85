//! The name of a request: the client's, or one that is made. The answer has it, and the audit log.

use http::Request;
use http::header::HeaderValue;
use reveille_core::limits::AUDIT_REQUEST_ID_BYTES_MAX;
use reveille_engine::Engine;

use crate::http::auth::REQUEST_ID;
use crate::http::error::RequestError;
use crate::http::reply::Reply;

/// What a request is called.
pub(crate) struct RequestName {
    value: HeaderValue,
    /// Whether the client gave one that cannot be used.
    is_replaced: bool,
}

/// Finds the name of a request. One that has none, or none that is good, is given one.
pub(crate) fn name_request<B>(engine: &Engine, request: &mut Request<B>) -> RequestName {
    let given = request.headers().get(REQUEST_ID);
    if let Some(value) = given.filter(|value| is_name(value)) {
        return RequestName { value: value.clone(), is_replaced: false };
    }
    let is_replaced = given.is_some();
    let made = engine.fresh_ulid().to_string();
    let value = HeaderValue::from_str(&made).unwrap_or_else(|_| HeaderValue::from_static("-"));
    request.headers_mut().insert(REQUEST_ID, value.clone());
    RequestName { value, is_replaced }
}

impl RequestName {
    /// Refuses a name that would not be found again.
    pub(crate) fn check(&self) -> Result<(), RequestError> {
        if !self.is_replaced {
            return Ok(());
        }
        Err(RequestError::Header(format!(
            "X-Request-ID has 1 to {AUDIT_REQUEST_ID_BYTES_MAX} printable ASCII characters; leave \
             it out to have one made"
        )))
    }

    pub(crate) fn name_reply(self, reply: &mut Reply) {
        reply.headers_mut().insert(REQUEST_ID, self.value);
    }
}

fn is_name(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    (1..=AUDIT_REQUEST_ID_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_printable_and_short() {
        let check = |bytes: &[u8], good: bool| {
            assert_eq!(HeaderValue::from_bytes(bytes).is_ok_and(|it| is_name(&it)), good);
        };
        check(b"req-1", true);
        check(b"", false);
        check("\u{e9}".as_bytes(), false);
        check(&[b'x'; AUDIT_REQUEST_ID_BYTES_MAX], true);
        check(&[b'x'; AUDIT_REQUEST_ID_BYTES_MAX + 1], false);
    }
}
