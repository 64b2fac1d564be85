//! What is sent: the body and the headers of a delivery (PAY-1 to PAY-4, LIM-1, LIM-2).

use std::borrow::Cow;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::definition::{Definition, PayloadDetail};
use super::duration::print_ms;
use super::limits::{TRIGGER_BODY_BYTES_MAX, TRIGGER_HEADERS_BYTES_MAX};
use super::message::{ChangeMessage, MessageError, fields};
use super::name::TriggerId;
use super::signature;
use super::transform::Mask;
use crate::tenant::Tenant;

/// One delivery, as far as its body says something about it.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a> {
    pub trigger: &'a TriggerId,
    /// Which version of it has matched.
    pub version: u64,
    pub definition: &'a Definition,
    pub change: &'a ChangeMessage<'a>,
    /// For calls back; `None` if there is none.
    pub token: Option<&'a str>,
    pub replay: Option<Replay<'a>>,
    /// Whether nobody has made this change, and a trigger is only tried.
    pub is_test: bool,
}

/// Which replay has made a delivery (DLQ-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replay<'a> {
    pub replay_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<&'a str>,
    pub count: u16,
}

/// One attempt, as far as its headers say something about it.
#[derive(Debug, Clone, Copy)]
pub struct Attempt<'a> {
    pub idempotency_key: &'a str,
    pub delivery_id: &'a str,
    /// From 1.
    pub number: u32,
    /// Seconds since 1970.
    pub timestamp_s: u64,
    pub replay_id: Option<&'a str>,
}

/// Nothing is sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("the body would have {0} bytes, and at most {TRIGGER_BODY_BYTES_MAX} are sent")]
    TooLarge(usize),
    #[error("the headers would have {0} bytes, and at most {TRIGGER_HEADERS_BYTES_MAX} are sent")]
    HeadersTooLarge(usize),
    #[error(transparent)]
    Unreadable(#[from] MessageError),
}

/// A header.
pub type Header<'a> = (Cow<'a, str>, Cow<'a, str>);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    trigger_id: &'a str,
    tenant: &'a str,
    event: &'static str,
    collection: &'a str,
    id: &'a str,
    doc_key: &'a str,
    path: String,
    lsn: &'a str,
    seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Document<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Document<'a>>,
    ts: u64,
    trigger_version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_token: Option<&'a str>,
    /// The name under which receivers of the original look for it (C-1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pre_issued_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replay: Option<Replay<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    test: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    task: Option<Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Document<'a> {
    AsItIs(&'a RawValue),
    Masked(serde_json::Map<String, Value>),
}

/// The same for all attempts and replays: by it receivers know what they have had (PAY-2).
pub fn idempotency_key(tenant: &Tenant, trigger: &TriggerId, seq: u64) -> String {
    format!("{tenant}:{trigger}:{seq}")
}

impl Payload<'_> {
    /// The body.
    pub fn encode(&self) -> Result<Vec<u8>, PayloadError> {
        let Payload { trigger, version, definition, change, token, replay, is_test } = *self;
        let mask = definition.transform.as_ref();
        let before = change.before.filter(|_| definition.include_before);
        let is_task = definition.payload_detail == PayloadDetail::Task;
        let body = Body {
            trigger_id: trigger.as_str(),
            tenant: change.tenant.as_str(),
            event: change.kind.as_str(),
            collection: change.path.collection().as_str(),
            id: change.path.id().as_str(),
            doc_key: change.path.id().as_str(),
            path: change.path.to_string(),
            lsn: &change.lsn,
            seq: change.seq,
            before: document(before, mask)?,
            after: document(change.after, mask)?,
            ts: change.ts,
            trigger_version: version,
            system_token: token,
            pre_issued_token: token,
            replay,
            test: is_test,
            task: is_task.then(|| task(definition)),
        };
        let bytes = serde_json::to_vec(&body).expect("names are texts, and memory does not fail");
        if bytes.len() > TRIGGER_BODY_BYTES_MAX {
            return Err(PayloadError::TooLarge(bytes.len()));
        }
        Ok(bytes)
    }
}

fn document<'a>(
    document: Option<&'a RawValue>,
    mask: Option<&Mask>,
) -> Result<Option<Document<'a>>, PayloadError> {
    let Some(mask) = mask else { return Ok(document.map(Document::AsItIs)) };
    Ok(fields(document)?.map(|fields| Document::Masked(mask.apply(fields))))
}

/// How the trigger delivers (C-2).
fn task(definition: &Definition) -> Value {
    let headers: serde_json::Map<String, Value> =
        definition.headers.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    json!({
        "url": &*definition.url,
        "headers": headers,
        "secretsRef": definition.secrets_ref.as_ref().map(|it| it.as_str()),
        "retryPolicy": definition.retry.to_json(),
        "timeout": print_ms(definition.timeout_ms),
    })
}

/// The headers of an attempt, those of the definition last (PAY-3). Neither `Host` nor
/// `Content-Length` is among them.
pub fn headers<'a>(
    definition: &'a Definition,
    attempt: &Attempt<'a>,
    secrets: &[&str],
    body: &[u8],
) -> Result<Vec<Header<'a>>, PayloadError> {
    let signature = signature::header(secrets.iter().copied(), attempt.timestamp_s, body);
    let mut headers: Vec<Header<'a>> = vec![
        ("Content-Type".into(), "application/json".into()),
        ("User-Agent".into(), "Syntrix-Trigger-Service/1.0".into()),
        (signature::HEADER.into(), signature.into()),
        ("X-Syntrix-Idempotency-Key".into(), attempt.idempotency_key.into()),
        ("X-Syntrix-Delivery-Id".into(), attempt.delivery_id.into()),
        ("X-Syntrix-Attempt".into(), attempt.number.to_string().into()),
        ("X-Syntrix-Timestamp".into(), attempt.timestamp_s.to_string().into()),
    ];
    if let Some(replay_id) = attempt.replay_id {
        headers.push(("X-Syntrix-Replay".into(), replay_id.into()));
    }
    headers.extend(definition.headers.iter().map(|(name, value)| (name.into(), value.into())));
    let bytes = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > TRIGGER_HEADERS_BYTES_MAX {
        return Err(PayloadError::HeadersTooLarge(bytes));
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
