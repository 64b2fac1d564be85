//! The writes of a transaction, as they are sent.

use reveille_core::Millis;
use reveille_core::document::body::ReservedFields;
use reveille_core::document::filter::{Filter, check_count};
use reveille_core::document::patch::Patch;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::Data;
use reveille_core::document::transaction::{Op, OpError, Write};
use serde_json::{Map, Value};

use super::Error;
use crate::documents::filter::parse_filters;
use crate::http::fields::{FieldError, Fields};
use crate::http::known::check_fields;
use crate::http::moment;

const FIELDS: [&str; 7] = [
    "type",
    "path",
    "data",
    "precondition",
    "ifMatchVersion",
    "ifModifiedSince",
    "ifUnmodifiedSince",
];

/// Reads `ops`: all of them can be done, as far as they tell themselves.
pub(super) fn parse_ops(mut body: Map<String, Value>, ops_max: usize) -> Result<Vec<Op>, Error> {
    let list = match body.remove("ops") {
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Error::invalid("`ops` must be an array")),
        None => return Err(Error::invalid("`ops` is missing")),
    };
    if list.is_empty() {
        return Err(Error::invalid("`ops` is empty; there is nothing to write"));
    }
    if list.len() > ops_max {
        return Err(OpError::TooManyOps(ops_max).into());
    }
    let ops = list.into_iter().enumerate();
    ops.map(|(at, op)| parse_op(op).map_err(|error| error.of_op(at))).collect()
}

fn parse_op(op: Value) -> Result<Op, Error> {
    let Value::Object(mut op) = op else {
        return Err(Error::invalid("a write must be an object with `type` and `path`"));
    };
    check_fields(&op, &FIELDS)?;
    let path = Fields(&op).text("path")?.ok_or_else(|| Error::invalid("`path` is missing"))?;
    let path = DocumentPath::parse_tolerant(path)?;
    let preconditions = parse_preconditions(&op)?;
    let kind = Fields(&op).text("type")?.map(str::to_owned);
    let data = op.remove("data").filter(|data| !data.is_null());
    let has_data = data.is_some();
    let object = |kind: &str| match data {
        Some(Value::Object(fields)) => Ok(fields),
        Some(_) => Err(Error::invalid("`data` must be an object")),
        None => Err(Error::invalid(format!("`data` is missing: it is what `{kind}` writes"))),
    };
    let refuse = ReservedFields::Refuse;
    let write = match kind.as_deref() {
        Some(kind @ ("create" | "set")) => {
            let data = Data::parse(object(kind)?, path.id(), refuse)?.into();
            if kind == "set" { Write::Set(data) } else { Write::Create(data) }
        }
        Some(kind @ ("update" | "patch")) => {
            Write::Patch(Patch::parse(object(kind)?, path.id(), refuse)?)
        }
        Some("delete") if has_data => {
            return Err(Error::invalid("`delete` writes no `data`; leave it out"));
        }
        Some("delete") => Write::Delete,
        Some(_) => {
            return Err(Error::invalid(
                "`type` must be \"create\", \"set\", \"update\", \"patch\" or \"delete\"",
            ));
        }
        None => return Err(Error::invalid("`type` is missing")),
    };
    Ok(Op { path, write, preconditions })
}

/// What a document must be like to be written, in either way of saying it.
fn parse_preconditions(op: &Map<String, Value>) -> Result<Vec<Filter>, FieldError> {
    let mut preconditions = parse_filters("precondition", op.get("precondition"))?;
    preconditions.extend(Fields(op).number("ifMatchVersion")?.map(Filter::version_is));
    for name in ["ifModifiedSince", "ifUnmodifiedSince"] {
        preconditions.extend(parse_moment(op, name)?.map(Filter::not_updated_after));
    }
    check_count(&preconditions).map_err(|error| error.to_string())?;
    Ok(preconditions)
}

/// Milliseconds since 1970, as documents have them, or a date.
fn parse_moment(op: &Map<String, Value>, name: &str) -> Result<Option<Millis>, FieldError> {
    let moment = match Fields(op).get(name) {
        None => return Ok(None),
        Some(Value::String(text)) => moment::parse(text),
        Some(value) => value.as_u64().map(Millis),
    };
    moment.map(Some).ok_or_else(|| moment::message(name).into())
}
