//! The calls themselves, of somebody whose token is good.

use std::borrow::Cow;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::query::{Query, QueryError};
use reveille_core::document::snapshot::DocumentView;
use reveille_core::trigger::token::TokenAccess;
use reveille_engine::Error as EngineError;
use reveille_engine::documents::{DocumentCaller, DocumentError, DocumentRejection, DocumentWrite};
use reveille_kernel::limits::PAGE_BYTES_MAX;
use serde::Serialize;
use serde_json::{Map, Value};

use super::record::{CallRecord, write_row};
use super::{check_rate, denied};
use crate::Server;
use crate::documents::batch::{Error, Transaction, receipt_reply};
use crate::documents::body::{self, Body, BodyFailure};
use crate::documents::error::Error as SingleError;
use crate::documents::query;
use crate::http::auth::Origin;
use crate::http::error::RequestError;
use crate::http::fields::Fields;
use crate::http::known::check_fields;
use crate::http::page::Page;
use crate::http::reply::Reply;

/// One call, by whoever holds a token.
pub(super) struct Call<'c> {
    pub(super) server: &'c Server,
    pub(super) access: &'c TokenAccess,
    pub(super) origin: &'c Origin,
}

/// A document of an answer, or that there is none.
#[derive(Serialize)]
#[serde(untagged)]
enum Found<'a> {
    Document(DocumentView<'a>),
    Missing { path: &'a str, missing: bool },
}

impl Call<'_> {
    /// `POST /api/v1/trigger/get`
    pub(super) async fn get(
        &self,
        request: Request<Incoming>,
        record: &mut CallRecord,
    ) -> Result<Reply, Error> {
        let body = self.read(request).await?;
        check_fields(&body.fields, &["paths"])?;
        let given = parse_paths(&body.fields, self.ops_max())?;
        let paths: Vec<DocumentPath> =
            given.iter().map(|text| parse_path(text)).collect::<Result<_, _>>()?;
        record.about(paths.iter().map(DocumentPath::to_string));
        for path in &paths {
            self.access.check_path(&path.to_string()).map_err(denied)?;
        }
        self.check_rate()?;
        let engine = &self.server.engine;
        let mut page = Page::begin_data(engine, self.access.tenant(), "documents").await?;
        let found = engine.documents(&self.caller(), paths.clone(), PAGE_BYTES_MAX).await;
        let found = found.map_err(engine_refusal)?;
        for ((given, path), document) in given.iter().zip(&paths).zip(&found) {
            let entry = match document {
                Some(document) => Found::Document(DocumentView::new(path, document)),
                None => Found::Missing { path: given, missing: true },
            };
            if !page.push(&entry) {
                let too_large = DocumentRejection::TooManyBytes { bytes_max: PAGE_BYTES_MAX };
                return Err(too_large.into());
            }
        }
        drop(body.room);
        self.audit_reading(record).await?;
        Ok(page.finish(StatusCode::OK, &Map::new()))
    }

    /// `POST /api/v1/trigger/query`
    pub(super) async fn query(
        &self,
        request: Request<Incoming>,
        record: &mut CallRecord,
    ) -> Result<Reply, Error> {
        let Body { fields, room, .. } = self.read(request).await?;
        let fields = unwrap_query(fields)?;
        check_fields(&fields, &query::FIELDS)?;
        let explains = Fields(&fields).flag("explain")?;
        let spec = query::parse_query(&fields)?;
        record.about([spec.collection.to_string()]);
        self.access.check_path(spec.collection.as_str()).map_err(denied)?;
        self.check_rate()?;
        let limits = self.server.engine.document_settings().page_limits();
        let query = Query::new(spec, limits).map_err(|error| match error {
            QueryError::LimitTooHigh(_) => Error::new(StatusCode::TOO_MANY_REQUESTS, error),
            error => SingleError::from(error).into(),
        })?;
        drop(room);
        let reply = query::respond(self.server, &self.caller(), &query, explains).await;
        let reply = reply.map_err(engine_refusal)?;
        self.audit_reading(record).await?;
        Ok(reply)
    }

    /// `POST /api/v1/trigger/write`
    pub(super) async fn write(
        &self,
        request: Request<Incoming>,
        record: &mut CallRecord,
    ) -> Result<Reply, Error> {
        let body = self.read(request).await?;
        let Transaction { key, body: hash, ops, room } = Transaction::parse(body, self.ops_max())?;
        record.about(ops.iter().map(|op| op.path.to_string()));
        record.under(key.as_str());
        let named = |error: Error| error.under(&key);
        for (at, op) in ops.iter().enumerate() {
            let allowed = self.access.check_path(&op.path.to_string());
            allowed.map_err(|error| named(denied_op(at, error)))?;
        }
        self.check_rate().map_err(named)?;
        let write = DocumentWrite {
            ops,
            idempotency: Some((key.clone(), hash)),
            origin: self.access.origin(),
            audit: Some(record.audit_entry(self.origin, None)),
        };
        let receipt = self.server.engine.write_documents(&self.caller(), write).await;
        let receipt = receipt.map_err(|error| named(error.into()))?;
        drop(room);
        record.repeated(receipt.repeated.is_some());
        Ok(receipt_reply(&receipt, &key))
    }

    fn check_rate(&self) -> Result<(), Error> {
        check_rate(self.server, self.access.tenant(), self.access.holder())
    }

    /// Whose documents, under which rules, with whose idempotency keys.
    fn caller(&self) -> DocumentCaller {
        DocumentCaller {
            tenant: self.access.tenant().clone(),
            auth: self.access.rule_auth(),
            scope: self.access.idempotency_scope().into(),
        }
    }

    /// A token can only lower what the server takes.
    fn ops_max(&self) -> usize {
        let server = self.server.engine.document_settings().ops_max;
        let token = self.access.max_ops().and_then(|max| usize::try_from(max).ok());
        token.map_or(server, |max| max.min(server))
    }

    async fn read(&self, request: Request<Incoming>) -> Result<Body, Error> {
        let server_max = self.server.config.max_body_bytes;
        let of_token = self.access.max_payload_kb();
        let token_max = of_token.and_then(|kb| usize::try_from(kb.saturating_mul(1_024)).ok());
        let max = token_max.map_or(server_max, |max| max.min(server_max));
        let body = body::read_call(self.server, self.access.tenant(), request, max).await;
        body.map_err(|failure| match failure {
            BodyFailure::Request(error @ RequestError::BodyTooLarge { .. }) if max < server_max => {
                let kb = max / 1_024;
                let message = format!("the body is larger than {kb} KB, which this token allows");
                Error::from(error).with_message(message)
            }
            failure => failure.into(),
        })
    }

    /// Readings that no rule has looked at, or that have every path, are written down.
    async fn audit_reading(&self, record: &CallRecord) -> Result<(), Error> {
        if !self.access.is_system() && !self.access.bypasses_rules() {
            return Ok(());
        }
        let entry = record.audit_entry(self.origin, None);
        write_row(self.server, self.access.tenant(), entry).await
    }
}

/// What the engine says to those who read.
fn engine_refusal(error: DocumentError) -> Error {
    match error {
        EngineError::Rejected(
            rejection @ (DocumentRejection::RuleDenied { .. }
            | DocumentRejection::TooManyBytes { .. }),
        ) => rejection.into(),
        error => SingleError::from(error).into(),
    }
}

fn denied_op(at: usize, error: reveille_core::trigger::token::AccessDenied) -> Error {
    Error::new(StatusCode::FORBIDDEN, error).with_detail(Some(at), "PATH_NOT_ALLOWED")
}

/// `paths`, as they were written.
fn parse_paths(body: &Map<String, Value>, max: usize) -> Result<Vec<String>, Error> {
    let list = match body.get("paths") {
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Error::invalid("`paths` must be an array of paths")),
        None => return Err(Error::invalid("`paths` is missing")),
    };
    if list.is_empty() {
        return Err(Error::invalid("`paths` is empty; there is nothing to get"));
    }
    if list.len() > max {
        let message = format!("one call gets at most {max} documents; use several");
        return Err(Error::new(StatusCode::TOO_MANY_REQUESTS, message));
    }
    let path = |(at, path): (usize, &Value)| match path {
        Value::String(path) => Ok(path.clone()),
        _ => Err(Error::invalid(format!("`paths[{at}]` must be a string"))),
    };
    list.iter().enumerate().map(path).collect()
}

fn parse_path(text: &str) -> Result<DocumentPath, Error> {
    let shown = text.get(..text.floor_char_boundary(64)).unwrap_or_default();
    DocumentPath::parse_tolerant(text)
        .map_err(|error| Error::invalid(format!("`{}`: {error}", shown.escape_debug())))
}

/// The query itself, which may stand in an object of its own. Its collection may be written with
/// slashes around it.
fn unwrap_query(mut body: Map<String, Value>) -> Result<Map<String, Value>, Error> {
    let mut query = match body.remove("query") {
        Some(Value::Object(query)) => {
            check_fields(&body, &["query"])?;
            query
        }
        Some(_) => return Err(Error::invalid("`query` must be an object")),
        None => body,
    };
    if let Some(Value::String(collection)) = query.get_mut("collection") {
        *collection = trimmed(collection).into_owned();
    }
    Ok(query)
}

fn trimmed(path: &str) -> Cow<'_, str> {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.strip_suffix('/').unwrap_or(path).into()
}
