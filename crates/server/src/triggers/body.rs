//! Bodies of requests about triggers, with the bytes that a signature is over.

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, Request};
use hyper::body::Incoming;
use reveille_core::limits::AUDIT_REASON_BYTES_MAX;
use serde_json::{Map, Value};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::{FieldError, Fields, parse_object};
use crate::http::inbound::{self, InboundBody, OBJECT_BYTES_MAX};
use crate::http::known::check_fields;

/// A hundred definitions of ordinary length.
pub(super) const APPLY_BYTES_MAX: usize = 1 << 20;

/// A request whose body is read.
pub(super) struct ReadRequest {
    pub(super) headers: HeaderMap,
    pub(super) body: InboundBody,
    /// The body as an object; one without fields if there is none.
    pub(super) object: Map<String, Value>,
}

impl ReadRequest {
    /// Reads a body of at most `max` bytes, which may be left out.
    pub(super) async fn read(
        server: &Server,
        caller: &Caller,
        request: Request<Incoming>,
        max: usize,
    ) -> Result<ReadRequest, Error> {
        let (Parts { headers, .. }, body) = request.into_parts();
        let max = max.min(server.config.max_body_bytes);
        let body = inbound::read(&server.engine, &caller.tenant, &headers, body, max).await?;
        let object = match body.bytes.trim_ascii() {
            [] => Map::new(),
            bytes => parse_object(bytes)?,
        };
        Ok(ReadRequest { headers, body, object })
    }

    /// Reads a body that has no fields but these.
    pub(super) async fn read_known(
        server: &Server,
        caller: &Caller,
        request: Request<Incoming>,
        known: &[&str],
    ) -> Result<ReadRequest, Error> {
        let request = ReadRequest::read(server, caller, request, OBJECT_BYTES_MAX).await?;
        check_fields(&request.object, known)?;
        Ok(request)
    }

    pub(super) fn fields(&self) -> Fields<'_> {
        Fields(&self.object)
    }

    /// Why it is done, if the request says so.
    pub(super) fn reason(&self) -> Result<Option<Arc<str>>, FieldError> {
        reason(self.fields().text("reason")?)
    }
}

/// Why something is done, in words that are kept whole.
pub(super) fn reason(text: Option<&str>) -> Result<Option<Arc<str>>, FieldError> {
    let text = text.map(str::trim).filter(|text| !text.is_empty());
    if text.is_some_and(|text| text.len() > AUDIT_REASON_BYTES_MAX) {
        return Err(format!("`reason` is at most {AUDIT_REASON_BYTES_MAX} bytes long").into());
    }
    Ok(text.map(Into::into))
}
