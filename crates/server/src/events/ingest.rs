//! Taking events in.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::event::Ingest;
use reveille_engine::Engine;
use serde_json::{Value, json};

use super::Scope;
use super::error::Error;
use crate::Server;
use crate::http::reply::{self, Reply};
use crate::http::{inbound, trace};

/// `POST /ingest`: all of the events, or none.
pub(super) async fn answer(
    server: &Server,
    scope: &Scope,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let (parts, body) = request.into_parts();
    let (engine, max) = (&server.engine, server.config.max_body_bytes);
    let body = inbound::read_in_turn(engine, &scope.tenant, &parts.headers, body, max).await?;
    let ingest = Ingest::parse(&body.bytes)?;
    let now = engine.clock().wall();
    let first_id = engine.first_ulid();
    let fresh = ingest.events.iter().zip(first_id.and_following());
    let events: Vec<_> = fresh.map(|(raw, fresh)| raw.seal(fresh, now, scope.name())).collect();
    let ids: Vec<Value> = events.iter().map(|event| event.id.as_ref().into()).collect();
    let span = trace::begin(server, "ingest", &parts.headers);
    let within = span.map(|span| span.trace);
    let taken = engine.ingest(&scope.tenant, events, first_id, ingest.batch_id, within).await;
    trace::end(server, span, &Engine::event_stream(&scope.tenant), &taken);
    let (received, repeated) = taken?;
    let mut answer = json!({ "ok": true, "received": received, "namespace": scope.name() });
    if let Some(object) = answer.as_object_mut() {
        // The ids that a batch was given the first time are not known any more.
        let (name, value) =
            if repeated { ("deduplicated", true.into()) } else { ("eventIds", ids.into()) };
        object.insert(name.into(), value);
    }
    Ok(reply::json(StatusCode::OK, &answer))
}
