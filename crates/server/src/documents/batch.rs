//! Transactions: `POST /api/v1/batch`, many writes at once, all of them or none, done once however
//! often they are sent.

mod error;
mod op;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::document::idempotency::{BodyHash, IdempotencyKey, KeyError, WriteEnd};
use reveille_core::document::origin::Origin;
use reveille_core::document::transaction::Op;
use reveille_engine::documents::{DocumentWrite, WriteReceipt};
use serde_json::{Map, Value, json};

pub(super) use self::error::Error;

use self::error::replayed;
use self::op::parse_ops;
use super::body::{self, Body, BodyRoom};
use super::document_caller;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::Fields;
use crate::http::known::check_fields;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Says that nothing was done now, because it had been before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

const FIELDS: [&str; 2] = ["ops", "idempotencyKey"];

/// Answers a transaction.
pub(super) async fn answer(server: &Server, caller: &Caller, request: Request<Incoming>) -> Reply {
    execute(server, caller, request).await.unwrap_or_else(Error::reply)
}

async fn execute(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let method = request.method().clone();
    if method != Method::POST {
        return Err(RequestError::Method { method, allowed: "POST, OPTIONS" }.into());
    }
    Query::parse(request.uri().query()).check_known(&[])?;
    let body = body::read_batch(server, caller, request).await?;
    let ops_max = server.engine.document_settings().ops_max;
    let Transaction { key, body: hash, ops, room } = Transaction::parse(body, ops_max)?;
    let idempotency = Some((key.clone(), hash));
    let write = DocumentWrite { ops, idempotency, origin: Origin::CLIENT, audit: None };
    let receipt = server.engine.write_documents(&document_caller(caller), write).await;
    let receipt = receipt.map_err(|error| Error::from(error).under(&key))?;
    drop(room);
    Ok(receipt_reply(&receipt, &key))
}

/// What was sent.
pub(super) struct Transaction {
    pub(super) key: IdempotencyKey,
    pub(super) body: BodyHash,
    pub(super) ops: Vec<Op>,
    pub(super) room: BodyRoom,
}

impl Transaction {
    pub(super) fn parse(body: Body, ops_max: usize) -> Result<Transaction, Error> {
        let Body { fields, bytes, headers, room } = body;
        let key = parse_key(&headers, &fields)?;
        check_fields(&fields, &FIELDS).map_err(|error| Error::from(error).under(&key))?;
        let ops = parse_ops(fields, ops_max).map_err(|error| error.under(&key))?;
        Ok(Transaction { key, body: BodyHash::of(&bytes), ops, room })
    }
}

/// The key of a request: a header, or a field of the body.
fn parse_key(headers: &HeaderMap, body: &Map<String, Value>) -> Result<IdempotencyKey, Error> {
    let header = headers.get(IDEMPOTENCY_KEY);
    let header = header.map(|value| value.to_str().map_err(|_| KeyError::BadByte)).transpose()?;
    Ok(IdempotencyKey::of_request(header, Fields(body).text("idempotencyKey")?)?)
}

pub(super) fn receipt_reply(receipt: &WriteReceipt, key: &IdempotencyKey) -> Reply {
    let Some(record) = &receipt.repeated else {
        let results = receipt.results.iter().map(|result| {
            json!({ "status": "ok", "version": result.version, "updatedAt": result.updated_at.0 })
        });
        let results: Vec<Value> = results.collect();
        let body = json!({ "results": results, "idempotencyKey": key.as_str() });
        return reply::json(StatusCode::OK, &body);
    };
    let mut reply = match record.end {
        WriteEnd::Success => {
            let body =
                json!({ "status": "success", "idempotencyKey": key.as_str(), "replayed": true });
            reply::json(StatusCode::OK, &body)
        }
        end => replayed(end, &record.message).under(key).reply(),
    };
    reply.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    reply
}
