//! What a callback appends: messages stay the bytes that were sent, as those of a plain append do.

use std::collections::BTreeMap;
use std::fmt;

use reveille_core::media::{ContentType, Framing};
use reveille_core::stream::Body;
use reveille_core::stream::append::Append;
use reveille_core::{StreamPath, Tenant};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::fields::{Wrong, check_count};
use crate::Server;

/// The body of a callback.
pub(super) struct Sent<'a> {
    /// Everything but `append`.
    pub(super) fields: Map<String, Value>,
    append: Option<&'a RawValue>,
}

/// What a stream is to be written, before it is known what it takes.
pub(super) struct Draft<'a> {
    path: StreamPath,
    /// An array that is not empty, as it was sent.
    messages: &'a RawValue,
}

impl<'a> Sent<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Sent<'a>, Wrong> {
        serde_json::from_slice(body).map_err(|error| match error.classify() {
            Category::Data => "the body must be a JSON object".to_owned(),
            _ => format!("the body is not valid JSON: {error}"),
        })
    }

    /// Streams that are to be written together with the acks.
    pub(super) fn drafts(&self) -> Result<Vec<Draft<'a>>, Wrong> {
        let Some(append) = self.append.and_then(given) else { return Ok(Vec::new()) };
        let items: Vec<&RawValue> = read(append).ok_or("`append` must be an array")?;
        check_count("append", items.len())?;
        items.into_iter().map(Draft::read).collect()
    }
}

impl<'de> Deserialize<'de> for Sent<'de> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Sent<'de>, D::Error> {
        input.deserialize_map(SentVisitor)
    }
}

struct SentVisitor;

impl<'de> Visitor<'de> for SentVisitor {
    type Value = Sent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Sent<'de>, M::Error> {
        let mut sent = Sent { fields: Map::new(), append: None };
        while let Some(name) = map.next_key::<String>()? {
            if name == "append" {
                sent.append = Some(map.next_value()?);
            } else {
                sent.fields.insert(name, map.next_value()?);
            }
        }
        Ok(sent)
    }
}

impl<'a> Draft<'a> {
    fn read(item: &'a RawValue) -> Result<Draft<'a>, Wrong> {
        let wrong = || "`append` must hold objects with `path` and `messages`".to_owned();
        let fields: BTreeMap<String, &RawValue> = read(item).ok_or_else(wrong)?;
        let field = |name| fields.get(name).copied().and_then(given);
        let path: String =
            read(field("path").ok_or_else(wrong)?).ok_or("`append`: `path` must be a string")?;
        let path = StreamPath::parse(&path).map_err(|error| format!("`append`: {error}"))?;
        if path.is_internal() {
            return Err(format!("`append`: {path} is written by the server alone"));
        }
        let messages = field("messages").ok_or_else(wrong)?;
        let items: Vec<IgnoredAny> =
            read(messages).ok_or("`append`: `messages` must be an array")?;
        if items.is_empty() {
            return Err("`append`: `messages` must hold at least one message".into());
        }
        Ok(Draft { path, messages })
    }

    /// Messages for a stream that is not JSON are texts, one after another.
    fn text(&self) -> Result<String, Wrong> {
        let Draft { path, messages } = self;
        let texts: Vec<String> = read(messages).ok_or_else(|| {
            format!("`append`: {path} is no JSON stream; its messages are strings")
        })?;
        let text = texts.concat();
        if text.is_empty() {
            return Err(format!(
                "`append`: the messages for {path} are empty; send a byte at least"
            ));
        }
        Ok(text)
    }
}

/// What is to be appended, in the types that the streams have.
pub(super) fn appends(
    server: &Server,
    tenant: &Tenant,
    drafts: &[Draft<'_>],
) -> Result<Vec<(StreamPath, Append)>, Wrong> {
    let mut appends = Vec::with_capacity(drafts.len());
    for draft in drafts {
        // What the stream takes is known from the stream; the decision checks it again.
        let kind = server.engine.head(tenant, &draft.path).ok().map(|head| head.content_type);
        let kind = kind.unwrap_or_else(json_type);
        let body = match kind.framing() {
            Framing::Json => draft.messages.get().to_owned(),
            _ => draft.text()?,
        };
        let body = Body::new(body.into(), Some(&kind));
        let append = Append { content_type: Some(kind), body, ..Append::default() };
        appends.push((draft.path.clone(), append));
    }
    Ok(appends)
}

fn json_type() -> ContentType {
    ContentType::parse("application/json").expect("it is a type")
}

/// A value that is there; `null` is as good as absent.
fn given(raw: &RawValue) -> Option<&RawValue> {
    Some(raw).filter(|raw| raw.get() != "null")
}

/// The value, if it is one of the type.
fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}
