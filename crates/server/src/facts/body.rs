//! Reading the bodies of this face field by field, in its words.

use http::Request;
use hyper::body::Incoming;
use reveille_core::fact::garden::GardenSlug;
use reveille_core::fact::{EntityUri, Scope};
use serde_json::{Map, Value};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::Fields;
use crate::http::inbound::{self, InboundBody};
use crate::http::{known, object};

/// A body of this face: a fact has the largest, with escapes and what stands around its value.
const BODY_BYTES_MAX: usize = 256 << 10;

/// A JSON object that was sent, with the right to be in memory.
pub(super) struct Body {
    fields: Map<String, Value>,
    /// What is wrong with a field is said with this code.
    code: &'static str,
    _room: InboundBody,
}

impl Body {
    /// Reads the body of a request, which knows these fields and no others.
    pub(super) async fn read(
        server: &Server,
        caller: &Caller,
        request: Request<Incoming>,
        code: &'static str,
        known: &[&str],
    ) -> Result<Body, Error> {
        let (parts, body) = request.into_parts();
        let max = BODY_BYTES_MAX.min(server.config.max_body_bytes);
        let (engine, tenant) = (&server.engine, &caller.tenant);
        let body = inbound::read(engine, tenant, &parts.headers, body, max).await?;
        let fields = match body.bytes.trim_ascii() {
            // Nothing at all is as good as nothing in particular.
            [] => Map::new(),
            bytes => object::parse(bytes).map_err(Error::invalid_json)?,
        };
        known::check_fields(&fields, known).map_err(|why| Error::unprocessable(code, why))?;
        Ok(Body { fields, code, _room: body })
    }

    /// Says what is wrong with this body.
    pub(super) fn invalid(&self, why: impl std::fmt::Display) -> Error {
        Error::unprocessable(self.code, why)
    }

    /// A field that is there; `null` is as good as absent.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// A text that may be left out.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Error> {
        Fields(&self.fields).text(name).map_err(|why| self.invalid(why))
    }

    /// A text that must be there.
    pub(super) fn required(&self, name: &str) -> Result<&str, Error> {
        self.text(name)?.ok_or_else(|| self.invalid(format!("`{name}` is missing: a string")))
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Error> {
        Fields(&self.fields).number(name).map_err(|why| self.invalid(why))
    }

    /// An entity that must be there.
    pub(super) fn entity(&self, name: &str) -> Result<EntityUri, Error> {
        let entity = EntityUri::parse(self.required(name)?);
        entity.map_err(|why| self.invalid(format!("`{name}`: {why}")))
    }

    /// A scope; the narrowest one if none is named.
    pub(super) fn scope(&self) -> Result<Scope, Error> {
        let scope = self.text("scope")?.map(Scope::parse).transpose();
        Ok(scope.map_err(|why| self.invalid(format!("`scope`: {why}")))?.unwrap_or(Scope::Local))
    }

    /// A garden, if one is named.
    pub(super) fn garden(&self, name: &str) -> Result<Option<GardenSlug>, Error> {
        let garden = self.text(name)?.map(GardenSlug::parse_id).transpose();
        garden.map_err(|why| self.invalid(format!("`{name}`: {why}")))
    }
}

/// How many entries a page may have: so many unless the caller says otherwise, and at most so many.
pub(super) fn page_limit(
    query: &crate::http::query::Query,
    (default, max): (usize, usize),
) -> Result<usize, Error> {
    let Some(text) = query.get("limit")? else { return Ok(default) };
    let limit = text.parse().ok().filter(|limit| (1..=max).contains(limit));
    limit.ok_or_else(|| RequestError::Query(format!("`limit` is a number from 1 to {max}")).into())
}
