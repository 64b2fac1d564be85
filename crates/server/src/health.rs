//! Is the server alive, and does its pipeline really work?

use http::StatusCode;
use reveille_core::Millis;
use serde_json::json;
use tokio::sync::Mutex;

use crate::Server;
use crate::http::reply::{self, Reply};

/// An answer is good for this long: asking is not to become the server's main work.
const FRESH_MS: u64 = 500;

/// When the pipeline was last seen to work, or not.
#[derive(Default)]
pub(crate) struct Readiness {
    last: Mutex<Option<(Millis, Result<(), String>)>>,
}

/// Says that the process runs and answers.
pub(crate) fn liveness() -> Reply {
    reply::json(StatusCode::OK, &json!({ "status": "ok" }))
}

/// Says whether a write goes all the way to the disk and back.
pub(crate) async fn readiness(server: &Server) -> Reply {
    let mut last = server.readiness.last.lock().await;
    let now = server.engine.clock().now();
    let outcome = match &*last {
        Some((at, outcome)) if now.since(*at) < FRESH_MS => outcome.clone(),
        Some(_) | None => {
            let outcome = server.engine.probe().await.map_err(|error| error.to_string());
            *last = Some((now, outcome.clone()));
            outcome
        }
    };
    match outcome {
        Ok(()) => reply::json(StatusCode::OK, &json!({ "status": "ready" })),
        Err(problem) => {
            let body = json!({ "status": "not ready", "problem": problem });
            reply::json(StatusCode::SERVICE_UNAVAILABLE, &body)
        }
    }
}
