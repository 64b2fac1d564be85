//! Transactions that are sent again: how they ended is remembered with what they did.

use harness::http::Connection;
use serde_json::Value;

use super::model::{Answer, Sent};
use super::worker::{code_of, read_answer, send};
use super::write::DocumentWrite;
use crate::exchange::ExchangeError;
use crate::requests::{object, unexpected};
use crate::tenants::Tenant;

/// A transaction, and how it ended.
#[derive(Clone)]
pub(super) struct Repeatable {
    pub(super) write: DocumentWrite,
    end: End,
}

#[derive(Debug, Clone, PartialEq)]
enum End {
    Success,
    Failure(u16, String),
}

impl Repeatable {
    /// What has a key and an end.
    pub(super) fn of(sent: &Sent) -> Option<Repeatable> {
        sent.write.key.as_ref()?;
        let end = match sent.answer.as_ref()? {
            Answer::Done(_) => End::Success,
            Answer::Failed(status, code) => End::Failure(*status, code.clone()),
            Answer::Busy => return None,
        };
        Some(Repeatable { write: sent.write.clone(), end })
    }
}

/// Sends it again: nothing is done, and it is told how it ended.
pub(super) fn check_repeated(
    connection: &mut Connection,
    tenant: &Tenant,
    known: &Repeatable,
) -> Result<(), ExchangeError> {
    let answer = send(connection, tenant, &known.write.sending())?;
    // A server that has too much to do says so of repetitions as well.
    if answer.status == 503 {
        return Ok(());
    }
    let end = match answer.status {
        200 => End::Success,
        status => End::Failure(status, code_of(&answer)?),
    };
    let is_replayed = answer.header("idempotent-replayed") == Some("true");
    let says_so = object(&answer)?.get("replayed") == Some(&Value::Bool(true));
    if end != known.end || !is_replayed || !says_so {
        let what = format!("request {}, which ended in {:?}, again", known.write.id, known.end);
        return Err(unexpected(&what, &answer));
    }
    Ok(())
}

/// Sends a transaction again whose answer never came. `is_there` is what its changes say. Returns
/// how it ended, and whether that was just now.
pub(super) fn settle_unanswered(
    connection: &mut Connection,
    tenant: &Tenant,
    write: &DocumentWrite,
    is_there: bool,
) -> Result<(Answer, bool), ExchangeError> {
    let answer = send(connection, tenant, &write.sending())?;
    let is_replayed = answer.header("idempotent-replayed") == Some("true");
    match (answer.status, is_replayed) {
        (200, true) if is_there => Ok((Answer::Done(Vec::new()), false)),
        (200, false) if !is_there => Ok((read_answer(write, &answer)?, true)),
        // It had failed before the kill, or fails now: either way it is not there.
        (404 | 412, _) if !is_there => {
            Ok((Answer::Failed(answer.status, code_of(&answer)?), !is_replayed))
        }
        _ => {
            let state = if is_there { "is there" } else { "is not there" };
            Err(unexpected(&format!("request {}, which {state}, again", write.id), &answer))
        }
    }
}
