//! The body of a callback. Messages stay the bytes that were sent, as those of a plain append do.

use std::collections::BTreeMap;
use std::fmt;

use reveille_core::limits::JSON_DEPTH_MAX;
use reveille_core::{StreamPath, json};
use reveille_engine::wakes::callback::CallbackBody;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::http::fields::{FieldError, Fields, check_count};
use crate::http::subscription::{parse_acks, parse_claimed_wake};

/// What a consumer says in a callback, but for appends whose streams are not known yet.
pub(super) struct ParsedCallback<'a> {
    pub(super) body: CallbackBody,
    /// To be appended together with the acks.
    pub(super) messages: Vec<StreamMessages<'a>>,
}

/// Messages for a stream, before it is known what the stream takes.
pub(super) struct StreamMessages<'a> {
    pub(super) path: StreamPath,
    /// An array that is not empty, as it was sent.
    array: &'a RawValue,
}

impl<'a> ParsedCallback<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<ParsedCallback<'a>, FieldError> {
        let RawBody { fields, append } = RawBody::parse(body)?;
        let fields = Fields(&fields);
        let epoch = fields.number("epoch")?;
        let epoch = epoch.ok_or("`epoch` is missing; send the one from the notification")?;
        let acks = parse_acks(&fields, "path", str::to_owned)?;
        let messages = append.and_then(non_null).map_or(Ok(Vec::new()), parse_messages)?;
        if !messages.is_empty() && acks.is_empty() {
            let message = "`append` needs `acks`: what is appended is tied to what it was made \
                           from, so that a repeated callback appends nothing twice";
            return Err(message.into());
        }
        let body = CallbackBody {
            epoch,
            wake_id: parse_claimed_wake(&fields)?,
            acks,
            subscribe: fields.paths("subscribe")?,
            unsubscribe: fields.paths("unsubscribe")?,
            done: fields.flag("done")?,
            appends: Vec::new(),
        };
        Ok(ParsedCallback { body, messages })
    }
}

fn parse_messages(append: &RawValue) -> Result<Vec<StreamMessages<'_>>, FieldError> {
    let items: Vec<&RawValue> = parse(append).ok_or("`append` must be an array")?;
    check_count("append", items.len())?;
    items.into_iter().map(StreamMessages::parse).collect()
}

impl<'a> StreamMessages<'a> {
    fn parse(item: &'a RawValue) -> Result<StreamMessages<'a>, FieldError> {
        let message = || "`append` must hold objects with `path` and `messages`".to_owned();
        let fields: BTreeMap<String, &RawValue> = parse(item).ok_or_else(message)?;
        let field = |name| fields.get(name).copied().and_then(non_null);
        let path: String =
            parse(field("path").ok_or_else(message)?).ok_or("`append`: `path` must be a string")?;
        let path = StreamPath::parse(&path).map_err(|error| format!("`append`: {error}"))?;
        if path.is_internal() {
            return Err(format!("`append`: {path} is written by the server alone").into());
        }
        let array = field("messages").ok_or_else(message)?;
        if json::is_too_deep(array.get().as_bytes()) {
            return Err(format!(
                "`append`: `messages` is nested deeper than {JSON_DEPTH_MAX} arrays and objects"
            )
            .into());
        }
        let items: Vec<IgnoredAny> = parse(array).ok_or("`append`: `messages` must be an array")?;
        if items.is_empty() {
            return Err("`append`: `messages` must hold at least one message".into());
        }
        Ok(StreamMessages { path, array })
    }

    /// The messages for a JSON stream.
    pub(super) fn json(&self) -> String {
        self.array.get().to_owned()
    }

    /// The messages for a stream that is not JSON: texts, one after another.
    pub(super) fn text(&self) -> Result<String, FieldError> {
        let StreamMessages { path, array } = self;
        let texts: Vec<String> = parse(array).ok_or_else(|| {
            format!("`append`: {path} is no JSON stream; its messages are strings")
        })?;
        let text = texts.concat();
        if text.is_empty() {
            let message =
                format!("`append`: the messages for {path} are empty; send a byte at least");
            return Err(message.into());
        }
        Ok(text)
    }
}

/// A body with its `append` left as the bytes that it is.
struct RawBody<'a> {
    /// Everything but `append`.
    fields: Map<String, Value>,
    append: Option<&'a RawValue>,
}

impl<'a> RawBody<'a> {
    fn parse(body: &'a [u8]) -> Result<RawBody<'a>, FieldError> {
        serde_json::from_slice(body).map_err(|error| match error.classify() {
            Category::Data => "the body must be a JSON object".into(),
            _ => format!("the body is not valid JSON: {error}").into(),
        })
    }
}

impl<'de> Deserialize<'de> for RawBody<'de> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<RawBody<'de>, D::Error> {
        input.deserialize_map(RawBodyVisitor)
    }
}

struct RawBodyVisitor;

impl<'de> Visitor<'de> for RawBodyVisitor {
    type Value = RawBody<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<RawBody<'de>, M::Error> {
        let mut body = RawBody { fields: Map::new(), append: None };
        while let Some(name) = map.next_key::<String>()? {
            if name == "append" {
                body.append = Some(map.next_value()?);
            } else {
                body.fields.insert(name, map.next_value()?);
            }
        }
        Ok(body)
    }
}

/// A value that is there; `null` is as good as absent.
fn non_null(raw: &RawValue) -> Option<&RawValue> {
    Some(raw).filter(|raw| raw.get() != "null")
}

/// The value, if it is one of the type.
fn parse<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}
