//! Writing one document: a transaction of one write, answered with the document.

use http::header::{self, HeaderValue};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::document::body::{ReservedFields, take_id};
use reveille_core::document::filter::Filter;
use reveille_core::document::origin::Origin;
use reveille_core::document::patch::Patch;
use reveille_core::document::path::{CollectionPath, DocumentId, DocumentPath};
use reveille_core::document::snapshot::{Data, Document};
use reveille_core::document::transaction::{Op, Write};
use reveille_engine::documents::DocumentWrite;
use serde_json::{Map, Value};

use super::body::{self, Body};
use super::error::Error;
use super::filter::parse_filters;
use super::shape::{document_reply, fresh_uuid};
use super::{ROOT, document_caller};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::known::check_fields;
use crate::http::reply::{self, Reply};

/// What the bodies of `PUT` and `PATCH` have.
const FIELDS: [&str; 2] = ["doc", "ifMatch"];

/// `POST /api/v1/{collection}`: the body is the document itself.
pub(super) async fn create(
    server: &Server,
    caller: &Caller,
    collection: &CollectionPath,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let Body { mut fields, room, .. } = body::read(server, caller, request).await?;
    let id = match take_id(&mut fields)? {
        Some(id) => id,
        None => DocumentId::parse(&fresh_uuid(&server.engine))?,
    };
    let data = Data::parse(fields, &id, ReservedFields::Strip)?;
    let path = collection.document(id)?;
    let op =
        Op { path: path.clone(), write: Write::Create(data.into()), preconditions: Vec::new() };
    let document = write(server, caller, op).await?;
    drop(room);
    let (engine, tenant) = (&server.engine, &caller.tenant);
    let mut reply = document_reply(engine, tenant, StatusCode::CREATED, &path, &document);
    if let Ok(location) = HeaderValue::from_str(&format!("{ROOT}/{path}")) {
        reply.headers_mut().insert(header::LOCATION, location);
    }
    Ok(reply)
}

/// `PUT /api/v1/{document}`: it is replaced, or created.
pub(super) async fn set(
    server: &Server,
    caller: &Caller,
    path: DocumentPath,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let Body { fields, room, .. } = body::read(server, caller, request).await?;
    let (fields, preconditions) = parse_wrapper(fields)?;
    let data = Data::parse(fields, path.id(), ReservedFields::Strip)?;
    let op = Op { path: path.clone(), write: Write::Set(data.into()), preconditions };
    let document = write(server, caller, op).await?;
    drop(room);
    Ok(document_reply(&server.engine, &caller.tenant, StatusCode::OK, &path, &document))
}

/// `PATCH /api/v1/{document}`: some of its fields are written.
pub(super) async fn patch(
    server: &Server,
    caller: &Caller,
    path: DocumentPath,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let Body { fields, room, .. } = body::read(server, caller, request).await?;
    let (fields, preconditions) = parse_wrapper(fields)?;
    let patch = Patch::parse(fields, path.id(), ReservedFields::Strip)?;
    let op = Op { path: path.clone(), write: Write::Patch(patch), preconditions };
    let document = write(server, caller, op).await?;
    drop(room);
    Ok(document_reply(&server.engine, &caller.tenant, StatusCode::OK, &path, &document))
}

/// `DELETE /api/v1/{document}`, with `ifMatch` in a body if there is one.
pub(super) async fn delete(
    server: &Server,
    caller: &Caller,
    path: DocumentPath,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let body = body::read_optional(server, caller, request).await?;
    let preconditions = match &body {
        None => Vec::new(),
        Some(body) => {
            check_fields(&body.fields, &["ifMatch"])?;
            parse_filters("ifMatch", body.fields.get("ifMatch"))?
        }
    };
    write(server, caller, Op { path, write: Write::Delete, preconditions }).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

/// The document and what it must be like before, out of `{"doc","ifMatch"}`.
fn parse_wrapper(
    mut fields: Map<String, Value>,
) -> Result<(Map<String, Value>, Vec<Filter>), Error> {
    const HOW: &str = r#"send {"doc": {…}}, and "ifMatch" beside it if you like"#;
    let doc = match fields.remove("doc") {
        Some(Value::Object(doc)) => doc,
        Some(_) => {
            return Err(Error::bad_request(format!(
                "`doc` must be the document, an object: {HOW}"
            )));
        }
        None => {
            return Err(Error::bad_request(format!(
                "`doc` is missing: the fields of the document go inside of it; {HOW}"
            )));
        }
    };
    check_fields(&fields, &FIELDS)?;
    let preconditions = parse_filters("ifMatch", fields.get("ifMatch"))?;
    Ok((doc, preconditions))
}

/// Does one write; returns the document as it has become.
async fn write(server: &Server, caller: &Caller, op: Op) -> Result<Document, Error> {
    let path = op.path.clone();
    let write =
        DocumentWrite { ops: vec![op], idempotency: None, origin: Origin::CLIENT, audit: None };
    let receipt = server.engine.write_documents(&document_caller(caller), write).await?;
    let document = receipt.documents.get(&path).cloned();
    document.ok_or_else(|| Error::internal("the document that was written is not known"))
}
