//! The body of a callback. Messages stay the bytes that were sent, as those of a plain append do.

use std::fmt;

use reveille_core::limits::JSON_DEPTH_MAX;
use reveille_core::{StreamPath, json};
use reveille_engine::wakes::callback::CallbackBody;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::http::fields::{FieldError, Fields, LIST_MAX, check_count};
use crate::http::known::{self, check_fields_of};
use crate::http::object::{self, TreeBudget};
use crate::http::route::{Face, face_of};
use crate::http::subscription::{parse_acks, parse_claimed_wake};

/// What a callback says.
const FIELDS: [&str; 7] =
    ["epoch", "wake_id", "acks", "subscribe", "unsubscribe", "done", "append"];
/// What an entry of `acks` says.
const ACK_FIELDS: [&str; 3] = ["path", "offset", "from"];
/// What an entry of `append` says.
const APPEND_FIELDS: [&str; 2] = ["path", "messages"];
/// What is shown of a path that is none.
const PATH_SHOWN_MAX: usize = 64;

/// What a consumer says in a callback, but for appends whose streams are not known yet.
pub(super) struct ParsedCallback<'a> {
    pub(super) body: CallbackBody,
    /// To be appended together with the acks.
    pub(super) messages: Vec<StreamMessages<'a>>,
    /// What was asked for and is not done, in sentences.
    pub(super) warnings: Vec<String>,
}

/// Messages for a stream, before it is known what the stream takes.
pub(super) struct StreamMessages<'a> {
    pub(super) path: StreamPath,
    /// An array that is not empty, as it was sent.
    array: &'a RawValue,
}

impl<'a> ParsedCallback<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<ParsedCallback<'a>, FieldError> {
        let RawBody { fields, append, unknown } = RawBody::parse(body)?;
        if let Some(name) = unknown {
            return Err(known::describe("field", &name, &FIELDS).into());
        }
        let fields = Fields(&fields);
        for ack in fields.list("acks")?.iter().filter_map(Value::as_object) {
            check_fields_of("acks", ack, &ACK_FIELDS)?;
        }
        let epoch = fields.number("epoch")?;
        let epoch = epoch.ok_or("`epoch` is missing; send the one from the notification")?;
        let acks = parse_acks(&fields, "path", str::to_owned)?;
        let messages = append.and_then(non_null).map_or(Ok(Vec::new()), parse_messages)?;
        if !messages.is_empty() && acks.is_empty() {
            let message = "`append` needs `acks`: what is appended is tied to what it was made \
                           from, so that a repeated callback appends nothing twice";
            return Err(message.into());
        }
        let mut warnings = Vec::new();
        let body = CallbackBody {
            epoch,
            wake_id: parse_claimed_wake(&fields)?,
            acks,
            subscribe: parse_paths(&fields, "subscribe", &mut warnings)?,
            unsubscribe: parse_former_paths(&fields, "unsubscribe")?,
            done: fields.flag("done")?,
            appends: Vec::new(),
        };
        Ok(ParsedCallback { body, messages, warnings })
    }
}

/// The streams of a list. What cannot be the path of one is left out, with a warning: a consumer may
/// name what is not there, and nothing will ever be there.
fn parse_paths(
    fields: &Fields<'_>,
    name: &str,
    warnings: &mut Vec<String>,
) -> Result<Vec<StreamPath>, FieldError> {
    let mut paths = Vec::new();
    for item in fields.list(name)? {
        let text = item.as_str().ok_or_else(|| format!("`{name}` must hold strings"))?;
        let why = match StreamPath::parse(text) {
            Ok(path) if is_stream(&path) => {
                paths.push(path);
                continue;
            }
            Ok(_) => "the name belongs to another part of the server".to_owned(),
            Err(error) => error.to_string(),
        };
        let shown = text.get(..text.floor_char_boundary(PATH_SHOWN_MAX)).unwrap_or_default();
        warnings.push(format!("{} is not followed: {why}", shown.escape_debug()));
    }
    Ok(paths)
}

/// The same for streams that are to be followed no longer: what is no path is followed by nobody.
fn parse_former_paths(fields: &Fields<'_>, name: &str) -> Result<Vec<StreamPath>, FieldError> {
    let mut paths = Vec::new();
    for item in fields.list(name)? {
        let text = item.as_str().ok_or_else(|| format!("`{name}` must hold strings"))?;
        paths.extend(StreamPath::parse(text));
    }
    Ok(paths)
}

/// Whether there can be a stream of this name.
fn is_stream(path: &StreamPath) -> bool {
    path.as_str().parse().is_ok_and(|uri| face_of(&uri).0 == Face::Streams)
}

fn parse_messages(append: &RawValue) -> Result<Vec<StreamMessages<'_>>, FieldError> {
    let FewItems { items, count } = parse(append).ok_or("`append` must be an array")?;
    check_count("append", count)?;
    items.into_iter().map(StreamMessages::parse).collect()
}

impl<'a> StreamMessages<'a> {
    fn parse(item: &'a RawValue) -> Result<StreamMessages<'a>, FieldError> {
        let message = || "`append` must hold objects with `path` and `messages`".to_owned();
        let RawMessages { path, messages, unknown } = parse(item).ok_or_else(message)?;
        if let Some(name) = unknown {
            let why = known::describe("field", &name, &APPEND_FIELDS);
            return Err(format!("`append`: {why}").into());
        }
        let path = path.and_then(non_null).ok_or_else(message)?;
        let path: String = parse(path).ok_or("`append`: `path` must be a string")?;
        let path = StreamPath::parse(&path).map_err(|error| format!("`append`: {error}"))?;
        if path.is_internal() {
            return Err(format!("`append`: {path} is written by the server alone").into());
        }
        let array = messages.and_then(non_null).ok_or_else(message)?;
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
        let JoinedTexts(text) = parse(array).ok_or_else(|| {
            format!("`append`: {path} is no JSON stream; its messages are strings")
        })?;
        if text.is_empty() {
            let message =
                format!("`append`: the messages for {path} are empty; send a byte at least");
            return Err(message.into());
        }
        Ok(text)
    }
}

/// What an entry of `append` says.
#[derive(Default)]
struct RawMessages<'a> {
    path: Option<&'a RawValue>,
    messages: Option<&'a RawValue>,
    /// The first field that nobody knows.
    unknown: Option<String>,
}

impl<'de> Deserialize<'de> for RawMessages<'de> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<RawMessages<'de>, D::Error> {
        input.deserialize_map(RawMessagesVisitor)
    }
}

struct RawMessagesVisitor;

impl<'de> Visitor<'de> for RawMessagesVisitor {
    type Value = RawMessages<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<RawMessages<'de>, M::Error> {
        let mut found = RawMessages::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "path" => found.path = Some(map.next_value()?),
                "messages" => found.messages = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    found.unknown.get_or_insert(name);
                }
            }
        }
        Ok(found)
    }
}

/// The items of an array, as many as a list may have, and how many there are.
struct FewItems<'a> {
    items: Vec<&'a RawValue>,
    count: usize,
}

impl<'de> Deserialize<'de> for FewItems<'de> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<FewItems<'de>, D::Error> {
        input.deserialize_seq(FewItemsVisitor)
    }
}

struct FewItemsVisitor;

impl<'de> Visitor<'de> for FewItemsVisitor {
    type Value = FewItems<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<FewItems<'de>, S::Error> {
        let mut items = Vec::new();
        while items.len() < LIST_MAX {
            let Some(item) = seq.next_element()? else {
                return Ok(FewItems { count: items.len(), items });
            };
            items.push(item);
        }
        let mut count = items.len();
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(FewItems { items, count })
    }
}

/// Texts of an array, joined while they are read.
struct JoinedTexts(String);

impl<'de> Deserialize<'de> for JoinedTexts {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<JoinedTexts, D::Error> {
        input.deserialize_seq(JoinedTextsVisitor)
    }
}

struct JoinedTextsVisitor;

impl<'de> Visitor<'de> for JoinedTextsVisitor {
    type Value = JoinedTexts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of strings")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<JoinedTexts, S::Error> {
        let mut all = String::new();
        while let Some(text) = seq.next_element::<String>()? {
            all.push_str(&text);
        }
        Ok(JoinedTexts(all))
    }
}

/// A body with its `append` left as the bytes that it is.
struct RawBody<'a> {
    /// Everything else that a callback says.
    fields: Map<String, Value>,
    append: Option<&'a RawValue>,
    /// The first field that nobody knows.
    unknown: Option<String>,
}

impl<'a> RawBody<'a> {
    fn parse(body: &'a [u8]) -> Result<RawBody<'a>, FieldError> {
        match serde_json::from_slice(body) {
            Ok(body) => Ok(body),
            Err(_) if !is_object(body) => Err("the body must be a JSON object".into()),
            Err(error) => Err(object::describe(&error)),
        }
    }
}

fn is_object(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
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
        let mut body = RawBody { fields: Map::new(), append: None, unknown: None };
        let mut budget = TreeBudget::default();
        while let Some(name) = map.next_key::<String>()? {
            if name == "append" {
                body.append = Some(map.next_value()?);
                continue;
            }
            // What nobody asks for is read within the same bounds, and forgotten.
            let value = map.next_value_seed(budget.value())?;
            if FIELDS.contains(&&*name) {
                body.fields.insert(name, value);
            } else {
                body.unknown.get_or_insert(name);
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
