//! From a request to the face that answers it.

use std::sync::Arc;

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::StreamPath;

use crate::http::auth::{self, Caller, Requirement};
use crate::http::connections::BusyConnection;
use crate::http::error::RequestError;
use crate::http::listen::Service;
use crate::http::reply::{self, Reply};
use crate::http::route::{Face, check_read_method, face_of};
use crate::{
    Server, admin, documents, ds_subscriptions, events, facts, health, streams, triggers, wakes,
};

impl Service for Arc<Server> {
    async fn answer(&self, mut request: Request<Incoming>, connection: &BusyConnection) -> Reply {
        let started = self.engine.clock().now();
        let method = request.method().clone();
        let (face, requirement) = face_of(request.uri());
        let is_document =
            matches!(face, Face::Documents | Face::DocumentBatch | Face::TriggerCalls);
        let named = is_document.then(|| documents::name_request(&self.engine, &mut request));
        let checked = named.as_ref().map_or(Ok(()), |named| named.check());
        let dispatched = match self.browsers.check_host(&request).and(checked) {
            Ok(()) => dispatch(self, face, requirement, request, connection).await,
            Err(error) => Err(error),
        };
        let mut is_stream = face == Face::Streams;
        let mut reply = match dispatched {
            Ok(reply) => reply,
            Err(error) => {
                // Who is at the wrong server is told so, and nothing that this one lets pages see.
                is_stream &= error != RequestError::ForeignHost;
                match face {
                    Face::Events => events::refuse(error),
                    Face::Documents => documents::refuse(error),
                    Face::Facts => facts::refuse(error),
                    Face::DocumentBatch | Face::TriggerCalls => documents::refuse_batch(error),
                    _ => error.refusal().reply(),
                }
            }
        };
        if let Some(named) = named {
            named.name_reply(&mut reply);
        }
        if is_stream {
            reply::finish_stream(&mut reply);
        } else {
            reply::finish(&mut reply);
        }
        let elapsed_ms = self.engine.clock().now().since(started);
        self.metrics.count_request(&method, reply.status(), elapsed_ms);
        reply
    }
}

/// Lets a request in and hands it to its face. An error is one from before the face was reached.
async fn dispatch(
    server: &Server,
    face: Face,
    requirement: Requirement,
    request: Request<Incoming>,
    connection: &BusyConnection,
) -> Result<Reply, RequestError> {
    if request.method() == Method::OPTIONS {
        let is_stream = face == Face::Streams;
        return Ok(if is_stream { reply::preflight() } else { reply::options() });
    }
    server.browsers.check_origin(face, requirement, &request)?;
    let caller = auth::admit(server, requirement, &request)?.map(|it| it.on(connection));
    if let Some(caller) = &caller {
        caller.take_connection(connection)?;
    }
    let method = request.method();
    match (face, caller) {
        (Face::Nobody, _) => Err(RequestError::ReservedPath),
        (Face::Liveness, _) => check_read_method(method).map(|()| health::liveness()),
        (Face::Readiness, _) => {
            check_read_method(method)?;
            Ok(health::readiness(server).await)
        }
        (Face::Metrics, _) => {
            check_read_method(method)?;
            Ok(server.metrics.render().await)
        }
        (Face::SigningKeys, _) => ds_subscriptions::signing_keys(server, method),
        (Face::TriggerKeys, _) => documents::trigger_keys(server, method),
        (Face::TriggerCalls, _) => Ok(documents::answer_trigger(server, request, connection).await),
        (Face::Callback, _) => Ok(wakes::answer_callback(server, request).await),
        (Face::LeaseTokens, caller) => {
            Ok(ds_subscriptions::answer_token(server, caller.as_ref(), request).await)
        }
        (face, Some(caller)) => answer(server, face, &caller, request).await,
        // A face that is told who asks has a line that asks for a key.
        (_, None) => Err(RequestError::KeyRequired),
    }
}

/// Answers a request of somebody who is known.
async fn answer(
    server: &Server,
    face: Face,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, RequestError> {
    let resource = match face {
        Face::LeaseSubscriptions => {
            return Ok(ds_subscriptions::answer(server, caller, request).await);
        }
        Face::PatternSubscriptions => return Ok(wakes::answer(server, caller, request).await),
        Face::Events => return Ok(events::answer(server, caller, request).await),
        Face::Facts => return Ok(facts::answer(server, caller, request).await),
        Face::Documents => return Ok(documents::answer(server, caller, request).await),
        Face::DocumentBatch => return Ok(documents::answer_batch(server, caller, request).await),
        Face::Triggers => return Ok(triggers::answer(server, caller, request).await),
        Face::TriggerSecrets => {
            return Ok(triggers::answer_secrets(server, caller, request).await);
        }
        Face::TriggerCheckpoint => {
            return Ok(triggers::answer_checkpoint(server, caller, request).await);
        }
        Face::Keys => admin::Resource::Keys,
        Face::Tokens => admin::Resource::Tokens,
        Face::Rotate => admin::Resource::SigningKeys,
        Face::StreamList => admin::Resource::Streams,
        Face::Consumers => admin::Resource::Consumers,
        Face::Consumer => admin::Resource::Consumer,
        Face::Deliveries => admin::Resource::Deliveries,
        Face::Delivery => admin::Resource::Delivery,
        Face::Explanation => admin::Resource::Explanation,
        Face::Timers => admin::Resource::Timers,
        Face::Audit => admin::Resource::Audit,
        Face::DeadLetters => admin::Resource::DeadLetters,
        Face::Replay => admin::Resource::Replay,
        Face::Indexes => admin::Resource::Indexes,
        Face::Rules => admin::Resource::Rules,
        _ => {
            let path = StreamPath::parse(request.uri().path())?;
            return Ok(streams::answer(server, caller, &path, request).await);
        }
    };
    Ok(admin::answer(server, caller, resource, request).await)
}
