//! What a client sends to be taken in: a batch, a bare array of events, or a single event.
//!
//! An object with `events` and no `type` is a batch; an object with `type` is an event. All events
//! of a batch are taken in, or none.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::RawEvent;
use super::envelope::{EventError, is_plain_id, string};
use crate::json;
use crate::limits::{EVENT_BATCH_MAX, EVENT_BYTES_MAX, EVENT_ID_BYTES_MAX, JSON_DEPTH_MAX};

/// How much a refusal says of the name of a field.
const NAME_BYTES_SHOWN: usize = 64;
/// How many bad events a refusal names.
const INDICES_MAX: usize = 10;

// Each of them can be given one of the ids that are made together.
const _: () = assert!(EVENT_BATCH_MAX <= 1 << 16);

/// Events that are taken in together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ingest {
    /// The events, in the order in which they were sent.
    pub events: Vec<RawEvent>,
    /// By which a batch that is sent again is known.
    pub batch_id: Option<Arc<str>>,
}

/// Why nothing of a body is taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// The body is not JSON.
    #[error("the body is not valid JSON")]
    InvalidJson,
    /// Workers could not parse it.
    #[error("the body is nested deeper than {JSON_DEPTH_MAX} arrays and objects")]
    TooDeep,
    /// The body is not in one of the forms that events are sent in.
    #[error(transparent)]
    InvalidBatch(#[from] BatchError),
    /// Some events are not as events are.
    #[error("event {}: {reason}", indices.first().copied().unwrap_or_default())]
    InvalidEvent {
        /// Which events, counted from zero: the first ten.
        indices: Vec<usize>,
        /// What is wrong with the first of them.
        reason: EventError,
    },
    /// An event is larger than an event may be.
    #[error("event {index} is larger than {EVENT_BYTES_MAX} bytes")]
    EventTooLarge {
        /// Which event, counted from zero.
        index: usize,
    },
}

/// Why a body is not one of events.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// It is something else.
    #[error("the body is neither {{\"events\": […]}} nor an array of events nor an event")]
    Form,
    /// `events` is something else.
    #[error("`events` is not an array")]
    EventsNotArray,
    /// There are more events than a batch may have.
    #[error("a batch has at most {EVENT_BATCH_MAX} events")]
    TooManyEvents,
    /// A field that decides is there twice.
    #[error("the body has `events`, `batchId` or `type` more than once")]
    Repeated,
    /// It has a field that no batch has; an event may have any.
    #[error("a batch has no field `{0}`")]
    UnknownField(Arc<str>),
    /// The id of the batch cannot be kept.
    #[error("`batchId` is not a string of 1 to {EVENT_ID_BYTES_MAX} printable characters of ASCII")]
    BatchId,
}

impl Ingest {
    /// The fields of a batch.
    pub const FIELDS: [&str; 2] = ["events", "batchId"];

    /// Reads a body.
    pub fn parse(body: &[u8]) -> Result<Ingest, IngestError> {
        let text: &RawValue = serde_json::from_slice(body).map_err(|_| IngestError::InvalidJson)?;
        if json::is_too_deep(body) {
            return Err(IngestError::TooDeep);
        }
        let (events, batch_id) = match text.get().as_bytes().first() {
            Some(b'[') => (elements(text)?, None),
            Some(b'{') => members(text)?,
            Some(_) | None => return Err(BatchError::Form.into()),
        };
        if let Some(index) = events.iter().position(|event| event.get().len() > EVENT_BYTES_MAX) {
            return Err(IngestError::EventTooLarge { index });
        }
        Ok(Ingest { events: judge(&events)?, batch_id })
    }
}

fn judge(events: &[&RawValue]) -> Result<Vec<RawEvent>, IngestError> {
    let mut good = Vec::with_capacity(events.len());
    let (mut indices, mut first) = (Vec::new(), None);
    for (index, event) in events.iter().enumerate() {
        match RawEvent::parse(event.get()) {
            Ok(event) => good.push(event),
            Err(error) => {
                indices.push(index);
                first = first.or(Some(error));
                if indices.len() == INDICES_MAX {
                    break;
                }
            }
        }
    }
    match first {
        None => Ok(good),
        Some(reason) => Err(IngestError::InvalidEvent { indices, reason }),
    }
}

fn elements(text: &RawValue) -> Result<Vec<&RawValue>, BatchError> {
    let elements: Elements<'_> =
        serde_json::from_str(text.get()).map_err(|_| BatchError::EventsNotArray)?;
    if elements.too_many {
        return Err(BatchError::TooManyEvents);
    }
    Ok(elements.few)
}

/// The events of an object, and the id of the batch if it is one.
fn members(text: &RawValue) -> Result<(Vec<&RawValue>, Option<Arc<str>>), BatchError> {
    let members: Members<'_> = serde_json::from_str(text.get()).map_err(|_| BatchError::Form)?;
    if members.has_type {
        // What is there twice is the event's own matter.
        return Ok((vec![text], None));
    }
    if members.repeated {
        return Err(BatchError::Repeated);
    }
    let events = members.events.ok_or(BatchError::Form)?;
    if let Some(name) = members.unknown {
        return Err(BatchError::UnknownField(name));
    }
    let events = elements(events)?;
    let batch_id = match members.batch_id.filter(|id| id.get() != "null") {
        None => None,
        Some(id) => Some(string(id).filter(|id| is_plain_id(id)).ok_or(BatchError::BatchId)?),
    };
    Ok((events, batch_id.map(Arc::from)))
}

/// The elements of an array, as many as a batch may have; the rest is read over.
struct Elements<'a> {
    few: Vec<&'a RawValue>,
    too_many: bool,
}

impl<'a> Deserialize<'a> for Elements<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Elements<'a>, D::Error> {
        deserializer.deserialize_seq(ElementsVisitor)
    }
}

struct ElementsVisitor;

impl<'a> Visitor<'a> for ElementsVisitor {
    type Value = Elements<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut seq: S) -> Result<Elements<'a>, S::Error> {
        let mut few = Vec::new();
        while few.len() < EVENT_BATCH_MAX {
            let Some(element) = seq.next_element()? else {
                return Ok(Elements { few, too_many: false });
            };
            few.push(element);
        }
        let mut too_many = false;
        while seq.next_element::<IgnoredAny>()?.is_some() {
            too_many = true;
        }
        Ok(Elements { few, too_many })
    }
}

/// What decides of the members of an object.
#[derive(Default)]
struct Members<'a> {
    events: Option<&'a RawValue>,
    batch_id: Option<&'a RawValue>,
    has_type: bool,
    repeated: bool,
    /// The first that is none of these, or the beginning of its name.
    unknown: Option<Arc<str>>,
}

impl<'a> Deserialize<'a> for Members<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Members<'a>, D::Error> {
        deserializer.deserialize_map(MembersVisitor)
    }
}

struct MembersVisitor;

impl<'a> Visitor<'a> for MembersVisitor {
    type Value = Members<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Members<'a>, M::Error> {
        let mut members = Members::default();
        while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
            let repeated = match &*name {
                "events" => members.events.replace(value).is_some(),
                "batchId" => members.batch_id.replace(value).is_some(),
                "type" => std::mem::replace(&mut members.has_type, true),
                _ => {
                    let shown = name.get(..name.floor_char_boundary(NAME_BYTES_SHOWN));
                    let shown = || shown.unwrap_or_default().into();
                    members.unknown.get_or_insert_with(shown);
                    false
                }
            };
            members.repeated |= repeated;
        }
        Ok(members)
    }
}

#[cfg(test)]
mod tests;
