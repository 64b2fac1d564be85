//! Bodies of this face: read whole, within the memory that they and what becomes of them may take.

use bytes::Bytes;
use http::{HeaderMap, Request};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::document::limits::{DOCUMENT_BYTES_MAX, DOCUMENT_VALUES_MAX};
use reveille_engine::{Engine, Permit, Unavailable};
use serde_json::{Map, Value};

use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::inbound::{self, InboundBody};
use crate::http::object::{self, TreeError, TreeLimits};

/// Bytes of a body that is about one document, or asks for some.
const BODY_BYTES_MAX: usize = 1 << 20;
const _: () = assert!(BODY_BYTES_MAX >= DOCUMENT_BYTES_MAX, "the largest document can be sent");

/// A document's values, and what stands around them.
const DOCUMENT_TREE: TreeLimits =
    TreeLimits { values: DOCUMENT_VALUES_MAX + 4_096, objects: DOCUMENT_VALUES_MAX + 256 };

/// The tree of a transaction is at most about as large as that of its largest documents.
const BATCH_TREE: TreeLimits = TreeLimits { values: 60_000, objects: 12_000 };

/// A JSON object that was sent, with the right to be in memory.
pub(super) struct Body {
    pub(super) fields: Map<String, Value>,
    /// As it came.
    pub(super) bytes: Bytes,
    pub(super) headers: HeaderMap,
    pub(super) room: BodyRoom,
}

/// Room for a body and its tree, given back when what was asked for is done.
pub(super) struct BodyRoom {
    _body: InboundBody,
    _tree: Option<Permit>,
}

/// Why there is no body to work with.
pub(super) enum BodyFailure {
    Request(RequestError),
    Tree(TreeError),
}

impl From<RequestError> for BodyFailure {
    fn from(error: RequestError) -> BodyFailure {
        BodyFailure::Request(error)
    }
}

impl From<Unavailable> for BodyFailure {
    fn from(why: Unavailable) -> BodyFailure {
        BodyFailure::Request(why.into())
    }
}

/// Reads the body of a request about one document.
pub(super) async fn read(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Body, BodyFailure> {
    let max = BODY_BYTES_MAX.min(server.config.max_body_bytes);
    let body = read_any(server, &caller.tenant, request, max, DOCUMENT_TREE).await?;
    body.ok_or_else(|| BodyFailure::Tree(TreeError::Malformed("the body is empty".into())))
}

/// The same where nothing at all has to be said.
pub(super) async fn read_optional(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Option<Body>, BodyFailure> {
    let max = BODY_BYTES_MAX.min(server.config.max_body_bytes);
    read_any(server, &caller.tenant, request, max, DOCUMENT_TREE).await
}

/// Reads the body of a transaction.
pub(super) async fn read_batch(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Body, BodyFailure> {
    read_call(server, &caller.tenant, request, server.config.max_body_bytes).await
}

/// The same of no more than so many bytes, by whoever has shown a token.
pub(super) async fn read_call(
    server: &Server,
    tenant: &Tenant,
    request: Request<Incoming>,
    max: usize,
) -> Result<Body, BodyFailure> {
    let body = read_any(server, tenant, request, max, BATCH_TREE).await?;
    body.ok_or_else(|| BodyFailure::Tree(TreeError::Malformed("the body is empty".into())))
}

async fn read_any(
    server: &Server,
    tenant: &Tenant,
    request: Request<Incoming>,
    max: usize,
    limits: TreeLimits,
) -> Result<Option<Body>, BodyFailure> {
    let engine = &server.engine;
    let (parts, body) = request.into_parts();
    let body = inbound::read_in_turn(engine, tenant, &parts.headers, body, max).await?;
    if body.bytes.is_empty() {
        return Ok(None);
    }
    let (fields, tree_bytes) =
        object::parse_within(&body.bytes, limits).map_err(BodyFailure::Tree)?;
    let bytes = body.bytes.clone();
    let room = BodyRoom { _tree: admit_tree(engine, tenant, tree_bytes).await?, _body: body };
    Ok(Some(Body { fields, bytes, headers: parts.headers, room }))
}

/// Most trees are about as large as their bodies, which were counted; those that are much larger
/// count as well, because they wait for the commit.
async fn admit_tree(
    engine: &Engine,
    tenant: &Tenant,
    bytes: usize,
) -> Result<Option<Permit>, Unavailable> {
    const UNCOUNTED_BYTES: usize = 16 << 10;
    if bytes <= UNCOUNTED_BYTES {
        return Ok(None);
    }
    engine.admit(tenant, bytes).await.map(Some)
}
