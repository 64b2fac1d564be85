//! Reading the bodies of this face field by field, in its words.

use http::Request;
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::event::EventPattern;
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::rate::Rate;
use serde_json::{Map, Value};

use super::error::Error;
use crate::Server;
use crate::http::fields::Fields;
use crate::http::{inbound, known, object};

/// More attempts than this are not worth their noise.
const RETRIES_MAX: u64 = 100;
/// Five minutes: nobody waits longer for an answer.
const TIMEOUT_MS_MAX: u64 = 300_000;
/// There are never more attempts of one subscription on their way.
const CONCURRENCY_MAX: u64 = 512;
/// Attempts in a second: a limit above this would never be met.
const RATE_PER_S_MAX: u64 = 10_000;

/// A JSON object that was sent.
pub(super) struct Body(Map<String, Value>);

impl Body {
    /// Reads the body of a request.
    pub(super) async fn read(
        server: &Server,
        tenant: &Tenant,
        request: Request<Incoming>,
    ) -> Result<Body, Error> {
        let body = Body::read_any(server, tenant, request).await?;
        body.ok_or_else(|| Error::bad_request("INVALID_JSON", "Invalid JSON body"))
    }

    /// The same where nothing at all has to be said.
    pub(super) async fn read_optional(
        server: &Server,
        tenant: &Tenant,
        request: Request<Incoming>,
    ) -> Result<Body, Error> {
        let body = Body::read_any(server, tenant, request).await?;
        Ok(body.unwrap_or_else(|| Body(Map::new())))
    }

    /// The body, if there is one.
    async fn read_any(
        server: &Server,
        tenant: &Tenant,
        request: Request<Incoming>,
    ) -> Result<Option<Body>, Error> {
        let (parts, body) = request.into_parts();
        let max = inbound::OBJECT_BYTES_MAX.min(server.config.max_body_bytes);
        let body = inbound::read(&server.engine, tenant, &parts.headers, body, max).await?;
        if body.bytes.is_empty() {
            return Ok(None);
        }
        match object::parse(&body.bytes) {
            Ok(object) => Ok(Some(Body(object))),
            Err(_) => Err(Error::bad_request("INVALID_JSON", "Invalid JSON body")),
        }
    }

    /// Refuses fields of other names.
    pub(super) fn check_known(&self, known: &[&str]) -> Result<(), Error> {
        Ok(known::check_fields(&self.0, known)?)
    }

    /// Refuses fields that cannot be changed here, with a word on what to do instead.
    pub(super) fn check_fixed(&self, fixed: &[(&str, &str)]) -> Result<(), Error> {
        match fixed.iter().find(|(name, _)| self.0.contains_key(*name)) {
            None => Ok(()),
            Some((name, instead)) => {
                Err(Error::invalid_field(name, format!("cannot be changed here: {instead}")))
            }
        }
    }

    /// A field that is there; `null` is as good as absent.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    /// A field as it stands there, `null` included.
    pub(super) fn raw(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// A length of time: `"500ms"`, `"24h"`, or milliseconds as a number.
    pub(super) fn period_ms(&self, name: &str) -> Result<Option<u64>, Error> {
        Ok(Fields(&self.0).period_ms(name)?)
    }

    /// A text that may be left out.
    pub(super) fn text(&self, name: &str) -> Result<Option<&str>, Error> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Error::invalid_field(name, "must be a string")),
        }
    }

    /// A text that must be there.
    pub(super) fn required(&self, name: &str) -> Result<&str, Error> {
        let text = self.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.ok_or_else(|| {
            Error::bad_request("MISSING_FIELD", format!("Missing required field: {name} (string)"))
        })
    }

    /// What is called in the worker, if it is said.
    pub(super) fn method(&self) -> Result<Option<RpcMethod>, Error> {
        let parse = |text| RpcMethod::parse(text);
        let method = self.text("rpcMethod")?.map(parse).transpose();
        method.map_err(|error| Error::invalid_field("rpcMethod", format!("is not valid: {error}")))
    }

    /// The worker, if it is said.
    pub(super) fn worker(&self) -> Result<Option<WorkerId>, Error> {
        let worker = self.text("workerId")?.map(WorkerId::parse).transpose();
        worker.map_err(|error| Error::invalid_field("workerId", format!("is not valid: {error}")))
    }

    /// The types of events that are wanted, if they are said.
    pub(super) fn pattern(&self) -> Result<Option<EventPattern>, Error> {
        let pattern = self.text("pattern")?.map(EventPattern::parse).transpose();
        pattern.map_err(|error| {
            Error::bad_request("INVALID_PATTERN", format!("Invalid pattern: {error}"))
        })
    }

    /// How often a delivery is tried, if it is said.
    pub(super) fn max_retries(&self) -> Result<Option<u32>, Error> {
        let number = self.integer("maxRetries", 0, RETRIES_MAX)?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    }

    /// How long an attempt may take, if it is said.
    pub(super) fn timeout_ms(&self) -> Result<Option<u64>, Error> {
        self.integer("timeoutMs", 1, TIMEOUT_MS_MAX)
    }

    /// How many attempts may be on their way, if it is said; `null` says any number.
    pub(super) fn concurrency(&self) -> Result<Option<Option<u32>>, Error> {
        self.limit("concurrency", CONCURRENCY_MAX)
    }

    /// How many attempts may be made in a second, if it is said; `null` says any number.
    pub(super) fn rate(&self) -> Result<Option<Option<Rate>>, Error> {
        Ok(self.limit("rateLimit", RATE_PER_S_MAX)?.map(|limit| limit.map(Rate::even)))
    }

    fn limit(&self, name: &str, max: u64) -> Result<Option<Option<u32>>, Error> {
        let limit = self.integer(name, 1, max)?;
        Ok(self.raw(name).map(|_| limit.and_then(|limit| u32::try_from(limit).ok())))
    }

    fn integer(&self, name: &str, min: u64, max: u64) -> Result<Option<u64>, Error> {
        let Some(value) = self.get(name) else { return Ok(None) };
        // `5.0` is an integer to JavaScript, which has no other numbers.
        let whole = value.as_f64().filter(|number| value.is_number() && number.fract() == 0.0);
        let whole = whole.ok_or_else(|| Error::invalid_field(name, "must be an integer"))?;
        let found = (min..=max).contains(&(whole.max(0.0) as u64)) && whole >= 0.0;
        if !found {
            return Err(Error::invalid_field(name, format!("must be from {min} to {max}")));
        }
        Ok(Some(whole as u64))
    }
}
