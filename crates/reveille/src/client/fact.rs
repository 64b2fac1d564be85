//! `reveille fact`: saying something about somebody, taking it back, and what is said.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

use anyhow::Context as _;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::Millis;
use reveille_core::fact::Scope;
use reveille_core::fact::value::{FactValue, ValueKind};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::list::ListArguments;
use super::table::{Item, ListPrinter, cell, cell_text, print_fields};
use super::url::encode_segment;
use super::{
    ApiRequest, ApiResponse, Client, Output, ServerArguments, parse_object, unexpected_answer,
};
use crate::failure::usage_error;

const FACTS: &str = "/v1/facts";
const PAGE: usize = 500;

/// What `reveille fact` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum FactCommand {
    /// Says something about an entity
    #[command(after_help = "\
A fact is a value of a relation of an entity: it is never changed, only followed by others. One with
another value than those that hold contradicts them, which subscribers are told of.

Example:
  reveille fact assert user:alice works_at acme --scope company
  reveille fact assert user:alice age 42 --type number --confidence 0.8
  reveille fact assert user:alice reports_to user:bob --type ref --scope team --garden atlas")]
    Assert(Assert),
    /// Takes back what was said of a relation
    #[command(after_help = "\
Everything that was said of the relation in the scope, and in the garden if one is named, holds no
longer. What was said is still there to be looked at.

Example:
  reveille fact retract user:alice works_at --scope company")]
    Retract(Retract),
    /// Finds facts that you may read: oldest first, those of an entity by relation
    #[command(after_help = "\
Example:
  reveille fact query --entity user:alice
  reveille fact query --scope company --relation works_at --output json")]
    Query(Query),
}

/// Where something is said.
#[derive(Debug, Args)]
struct Place {
    /// How far it is meant to go: local, team, company or public
    #[arg(long, value_name = "SCOPE", default_value = "local", value_parser = scopes(), hide_possible_values = true)]
    scope: String,
    /// The garden that it is said in, by its slug
    #[arg(long, value_name = "GARDEN")]
    garden: Option<String>,
    /// Who says so [default: you]
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
}

/// What `reveille fact assert` takes.
#[derive(Debug, Args)]
pub(crate) struct Assert {
    /// Whom it is about, like user:alice
    #[arg(value_name = "ENTITY")]
    entity: String,
    /// What is said of them, like works_at
    #[arg(value_name = "RELATION")]
    relation: String,
    /// The value
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: String,
    /// What the value is: string, text, number, boolean, datetime, ref or null
    #[arg(long = "type", value_name = "TYPE", default_value = "string", value_parser = kinds(), hide_possible_values = true)]
    kind: String,
    /// How sure it is, from 0 to 1
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    confidence: f64,
    /// Until when it holds, like 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME")]
    valid_until: Option<String>,
    #[command(flatten)]
    place: Place,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille fact retract` takes.
#[derive(Debug, Args)]
pub(crate) struct Retract {
    /// Whom it is about
    #[arg(value_name = "ENTITY")]
    entity: String,
    /// What was said of them
    #[arg(value_name = "RELATION")]
    relation: String,
    #[command(flatten)]
    place: Place,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille fact query` takes.
#[derive(Debug, Args)]
pub(crate) struct Query {
    /// Only facts about this entity
    #[arg(long, value_name = "ENTITY")]
    entity: Option<String>,
    /// Only facts of this relation
    #[arg(long, value_name = "RELATION")]
    relation: Option<String>,
    /// Only facts of this scope
    #[arg(long, value_name = "SCOPE", value_parser = scopes(), hide_possible_values = true)]
    scope: Option<String>,
    /// Only facts of this garden
    #[arg(long, value_name = "GARDEN")]
    garden: Option<String>,
    /// Only facts that hold: neither taken back nor over
    #[arg(long)]
    live: bool,
    #[command(flatten)]
    list: ListArguments,
}

fn scopes() -> PossibleValuesParser {
    PossibleValuesParser::new(Scope::ALL.map(Scope::as_str))
}

fn kinds() -> PossibleValuesParser {
    PossibleValuesParser::new(ValueKind::ALL.map(ValueKind::as_str))
}

pub(crate) fn run(command: FactCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        FactCommand::Assert(arguments) => assert(arguments, &mut out),
        FactCommand::Retract(arguments) => retract(arguments, &mut out),
        FactCommand::Query(arguments) => query(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn assert(arguments: Assert, out: &mut impl Write) -> anyhow::Result<()> {
    let Assert { entity, relation, value, kind, confidence, valid_until, .. } = arguments;
    let v = read_value(&kind, value)?;
    let mut fact = place_json(arguments.place, &entity, &relation);
    for (name, value) in [
        ("value", json!({ "type": kind, "v": v })),
        ("confidence", confidence.into()),
        ("valid_until", valid_until.into()),
    ] {
        fact.insert(name, value);
    }
    say(fact, arguments.server, arguments.output, out)
}

fn retract(arguments: Retract, out: &mut impl Write) -> anyhow::Result<()> {
    let Retract { entity, relation, place, output, server } = arguments;
    let mut fact = place_json(place, &entity, &relation);
    fact.insert("confidence", 0.into());
    say(fact, server, output, out)
}

/// A value of that kind, as it was written on the command line.
fn read_value(kind: &str, text: String) -> anyhow::Result<Value> {
    let wrong = |error: &dyn std::fmt::Display| usage_error(format!("the value is wrong: {error}"));
    let kind = ValueKind::parse(kind).map_err(|error| wrong(&error))?;
    let v = match kind {
        ValueKind::Number | ValueKind::Boolean | ValueKind::Null => {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        }
        ValueKind::String | ValueKind::Text | ValueKind::DateTime | ValueKind::Ref => text.into(),
    };
    FactValue::new(kind, &v).map_err(|error| wrong(&error))?;
    Ok(v)
}

fn place_json(place: Place, entity: &str, relation: &str) -> BTreeMap<&'static str, Value> {
    let Place { scope, garden, source } = place;
    BTreeMap::from([
        ("entity", entity.into()),
        ("relation", relation.into()),
        ("scope", scope.into()),
        ("garden_id", garden.into()),
        ("source", source.into()),
    ])
}

fn say(
    fact: BTreeMap<&'static str, Value>,
    server: ServerArguments,
    output: Output,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let mut request = ApiRequest::new(Method::POST, FACTS);
    request.body = serde_json::to_vec(&fact)?.into();
    // Said once: each time that it is said is a fact of its own.
    let answer = super::block_on(async {
        Ok(client.read_response(client.send_once(&request).await?).await?)
    })?;
    if answer.status != StatusCode::CREATED {
        return Err(client.refusal(&answer));
    }
    print_one(&answer, "facts", "id", output, out)
}

/// Prints what an answer is about.
pub(super) fn print_one(
    answer: &ApiResponse,
    about: &str,
    first: &str,
    output: Output,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let fields = parse_object(answer, about)?;
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(fields))?,
        Output::Human => print_fields(&fields, first, out)?,
    }
    Ok(())
}

fn query(arguments: Query, out: &mut impl Write) -> anyhow::Result<()> {
    let Query { entity, relation, scope, garden, live, list } = arguments;
    let filters =
        [("entity", entity), ("relation", relation), ("scope", scope), ("garden_id", garden)];
    let mut target = format!("{FACTS}?limit={PAGE}");
    for (name, value) in filters {
        if let Some(value) = value {
            target.push_str(&format!("&{name}={}", encode_segment(&value)));
        }
    }
    if live {
        target.push_str("&live=true");
    }
    let client = Client::new(list.server)?;
    let head = ["ENTITY", "RELATION", "VALUE", "CONFIDENCE", "SCOPE", "GARDEN", "SAID"];
    let mut printer = ListPrinter::new(list.output, head, row);
    super::block_on(print_facts(&client, &target, &mut printer, out))?;
    printer.finish("there are no such facts that you may read", out)?;
    Ok(())
}

async fn print_facts<const N: usize>(
    client: &Client,
    target: &str,
    printer: &mut ListPrinter<N>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut cursor: Option<String> = None;
    loop {
        let place = cursor.as_deref().map(|it| format!("&cursor={}", encode_segment(it)));
        let page = format!("{target}{}", place.unwrap_or_default());
        let answer = client.send(&ApiRequest::new(Method::GET, page)).await?;
        if answer.status != StatusCode::OK {
            return Err(client.refusal(&answer));
        }
        let unexpected = || unexpected_answer("facts");
        #[derive(serde::Deserialize)]
        struct Page {
            facts: Vec<Box<RawValue>>,
            cursor: Option<String>,
        }
        let page: Page = serde_json::from_slice(&answer.body).with_context(unexpected)?;
        let items: Result<Vec<Item>, _> = page.facts.into_iter().map(Item::parse).collect();
        printer.print(&items.with_context(unexpected)?, out)?;
        if page.cursor.is_none() {
            return Ok(());
        }
        cursor = page.cursor;
    }
}

fn row(fact: &Value, _: Millis) -> [String; 7] {
    [
        cell(fact, "entity"),
        cell(fact, "relation"),
        fact.pointer("/value/v").map(cell_text).unwrap_or_default(),
        cell(fact, "confidence"),
        cell(fact, "scope"),
        cell(fact, "garden_id"),
        cell(fact, "timestamp"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_their_type_says() {
        let read = |kind: &str, text: &str| read_value(kind, text.to_owned());
        assert_eq!(read("string", "42").unwrap(), json!("42"));
        assert_eq!(read("number", "42").unwrap(), json!(42));
        assert_eq!(read("boolean", "true").unwrap(), json!(true));
        assert_eq!(read("null", "null").unwrap(), json!(null));
        assert_eq!(read("ref", "user:bob").unwrap(), json!("user:bob"));
        for (kind, text) in [("number", "x"), ("boolean", "1"), ("datetime", "soon"), ("ref", "")] {
            assert!(read(kind, text).is_err(), "{kind} {text}");
        }
    }

    #[test]
    fn a_row_says_what_was_said() {
        let fact = json!({ "entity": "user:a", "relation": "age", "value": {"type": "number", "v": 4},
                           "confidence": 0.5, "scope": "team", "garden_id": null,
                           "timestamp": "2026-01-01T00:00:00.000Z" });
        let expected = ["user:a", "age", "4", "0.5", "team", "", "2026-01-01T00:00:00.000Z"];
        assert_eq!(row(&fact, Millis(0)), expected);
    }
}
