//! `reveille doc`: documents, one by one, found, brought in and taken out.

mod export;
mod import;
mod query;
mod watch;

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::document::path::{CollectionPath, DocumentPath, Place};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::table::print_fields;
use super::{ApiRequest, ApiResponse, Client, Output, ServerArguments, parse_object, stdin};
use crate::failure::usage_error;

const API: &str = "/api/v1";

/// What `reveille doc` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum DocCommand {
    /// Shows a document
    #[command(after_help = "\
Example:
  reveille doc get rooms/r1
  reveille doc get rooms/r1 --output json")]
    Get(Get),
    /// Writes a whole document, or creates one in a collection
    #[command(after_help = "\
A path with an even number of segments is a document, which is created or replaced. One with an odd
number is a collection: the document is created in it, under its `id` or one that is made.

Example:
  reveille doc put rooms/r1 '{\"name\":\"kitchen\",\"open\":true}'
  reveille doc put rooms '{\"name\":\"hall\"}'
  reveille doc put rooms/r1 --if-version 3 < room.json")]
    Put(Put),
    /// Writes some fields of a document
    #[command(after_help = "\
A name with dots is a field inside of objects; the other fields stay as they are.

Example:
  reveille doc patch rooms/r1 '{\"open\":false,\"address.city\":\"Paris\"}'")]
    Patch(Patch),
    /// Deletes a document
    #[command(after_help = "\
Example:
  reveille doc delete rooms/r1
  reveille doc delete rooms/r1 --if-version 4")]
    Delete(Delete),
    /// Finds documents of a collection
    #[command(after_help = "\
A filter is a field, an operator and a value with spaces between them. Operators are ==, !=, >, >=,
<, <=, in, not-in and array-contains; a value is JSON, or else the text that it is. With several
filters all of them must hold.

Example:
  reveille doc query rooms
  reveille doc query rooms --where 'open == true' --where 'seats >= 4' --order seats:desc
  reveille doc query rooms --where 'city in [\"Paris\",\"Rome\"]' --limit 10 --output json
  reveille doc query rooms --where 'seats > 4' --explain")]
    Query(query::Arguments),
    /// Follows a collection: what is there, then what becomes of it
    #[command(after_help = "\
First the documents that are there, then `ready`, then a line for each change. What is deleted, or
matches no more, or may not be seen any more, is `removed`. Whenever the connection is lost it goes on
where it stood; `reset` says that everything is sent again, because that is longer ago than changes
are kept, or what may be seen has changed. With --output json each line has the id of its event.

Example:
  reveille doc watch rooms
  reveille doc watch rooms --where 'seats >= 4' --output json
  reveille doc watch rooms --after 17 --output json | jq .data")]
    Watch(watch::Arguments),
    /// Writes documents of standard input into a collection
    #[command(after_help = "\
Standard input has one JSON object after another, a line each as `reveille doc export` writes them,
or in any other layout. Documents are created or replaced, under their `id` or one that follows from
their place and content; what a server itself says of a document, like `version`, is left out.

They are written in batches, each of them whole or not at all, and each known again by what is in
it. So an import that broke off is simply repeated with the same input: for as long as the server
remembers (--idempotency-ttl), what was done is not done twice. Whoever wants all of it written once
more, over what has changed meanwhile, gives that run a name of its own with --run.

Example:
  reveille doc import rooms < rooms.jsonl
  reveille doc export rooms --url http://old:4437 | reveille doc import rooms")]
    Import(import::Arguments),
    /// Prints the documents of a collection, one line of JSON each
    #[command(after_help = "\
Documents come in the order of their ids, page by page: those that are written meanwhile may be
there as they were before, or as they are after.

Example:
  reveille doc export rooms > rooms.jsonl
  reveille doc export rooms --where 'open == true' | jq .name")]
    Export(export::Arguments),
}

/// What `reveille doc get` takes.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The document, like rooms/r1
    #[arg(value_name = "PATH", value_parser = parse_document)]
    path: DocumentPath,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille doc put` takes.
#[derive(Debug, Args)]
pub(crate) struct Put {
    /// The document, like rooms/r1, or a collection to create it in, like rooms
    #[arg(value_name = "PATH", value_parser = parse_place)]
    place: Place,
    /// The document as JSON; `-` or nothing for standard input
    #[arg(value_name = "JSON")]
    document: Option<String>,
    /// Only if it has this version
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    /// How to print what it has become
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille doc patch` takes.
#[derive(Debug, Args)]
pub(crate) struct Patch {
    /// The document, like rooms/r1
    #[arg(value_name = "PATH", value_parser = parse_document)]
    path: DocumentPath,
    /// The fields as JSON; `-` or nothing for standard input
    #[arg(value_name = "JSON")]
    fields: Option<String>,
    /// Only if it has this version
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    /// How to print what it has become
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille doc delete` takes.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// The document, like rooms/r1
    #[arg(value_name = "PATH", value_parser = parse_document)]
    path: DocumentPath,
    /// Only if it has this version
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    #[command(flatten)]
    server: ServerArguments,
}

fn parse_place(text: &str) -> Result<Place, String> {
    Place::parse(text).map_err(|error| error.to_string())
}

fn parse_document(text: &str) -> Result<DocumentPath, String> {
    DocumentPath::parse(text).map_err(|error| error.to_string())
}

fn parse_collection(text: &str) -> Result<CollectionPath, String> {
    CollectionPath::parse(text).map_err(|error| error.to_string())
}

pub(crate) fn run(command: DocCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        DocCommand::Get(arguments) => get(arguments, &mut out),
        DocCommand::Put(arguments) => put(arguments, &mut out),
        DocCommand::Patch(arguments) => patch(arguments, &mut out),
        DocCommand::Delete(arguments) => delete(arguments, &mut out),
        DocCommand::Query(arguments) => query::run(arguments, &mut out),
        DocCommand::Watch(arguments) => watch::run(arguments, &mut out),
        DocCommand::Import(arguments) => import::run(arguments, &mut out),
        DocCommand::Export(arguments) => export::run(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn get(arguments: Get, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let request = ApiRequest::new(Method::GET, format!("{API}/{}", arguments.path));
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    let path = Place::Document(arguments.path);
    print_document(&client, &answer, &path, arguments.output, out)
}

fn put(arguments: Put, out: &mut impl Write) -> anyhow::Result<()> {
    let Put { place, document, if_version, output, server } = arguments;
    let document = read_object(document)?;
    let client = Client::new(server)?;
    let request = match &place {
        Place::Document(path) => wrapped(Method::PUT, path, document, if_version)?,
        Place::Collection(_) if if_version.is_some() => {
            return Err(usage_error(
                "--if-version is for a document that there is; name it by its whole path",
            ));
        }
        Place::Collection(collection) => {
            let mut request = ApiRequest::new(Method::POST, format!("{API}/{collection}"));
            request.body = String::from(Box::<str>::from(document)).into();
            request
        }
    };
    let answer = match place {
        // What was created is not created again under another id: it is asked for once.
        Place::Collection(_) => super::block_on(async {
            Ok(client.read_response(client.send_once(&request).await?).await?)
        }),
        Place::Document(_) => super::block_on(async { Ok(client.send(&request).await?) }),
    }?;
    print_document(&client, &answer, &place, output, out)
}

fn patch(arguments: Patch, out: &mut impl Write) -> anyhow::Result<()> {
    let Patch { path, fields, if_version, output, server } = arguments;
    let fields = read_object(fields)?;
    let client = Client::new(server)?;
    let request = wrapped(Method::PATCH, &path, fields, if_version)?;
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    print_document(&client, &answer, &Place::Document(path), output, out)
}

fn delete(arguments: Delete, out: &mut impl Write) -> anyhow::Result<()> {
    let Delete { path, if_version, server } = arguments;
    let client = Client::new(server)?;
    let mut request = ApiRequest::new(Method::DELETE, format!("{API}/{path}"));
    if let Some(version) = if_version {
        request.body = json!({ "ifMatch": if_match(version) }).to_string().into();
    }
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    match answer.status {
        StatusCode::NO_CONTENT => writeln!(out, "deleted {path}")?,
        StatusCode::NOT_FOUND => return Err(not_found(&Place::Document(path))),
        _ => return Err(client.refusal(&answer)),
    }
    Ok(())
}

/// A JSON object, from the command line or standard input, character by character.
fn read_object(text: Option<String>) -> anyhow::Result<Box<RawValue>> {
    let text = match text.filter(|text| text != "-") {
        Some(text) => text,
        None => String::from_utf8(stdin::read_all()?)
            .map_err(|_| anyhow!("standard input is not JSON, nor even UTF-8"))?,
    };
    let wrong = |error: &str| usage_error(format!("the document is not a JSON object ({error})"));
    let value: Box<RawValue> =
        serde_json::from_str(text.trim()).map_err(|error| wrong(&error.to_string()))?;
    if !value.get().starts_with('{') {
        return Err(wrong("it begins with something else than a brace"));
    }
    Ok(value)
}

/// A request whose body has the document in `doc`.
fn wrapped(
    method: Method,
    path: &DocumentPath,
    document: Box<RawValue>,
    if_version: Option<u64>,
) -> anyhow::Result<ApiRequest> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Body {
        doc: Box<RawValue>,
        #[serde(skip_serializing_if = "Option::is_none")]
        if_match: Option<Value>,
    }
    let mut request = ApiRequest::new(method, format!("{API}/{path}"));
    let body = Body { doc: document, if_match: if_version.map(if_match) };
    request.body = serde_json::to_vec(&body)?.into();
    Ok(request)
}

fn if_match(version: u64) -> Value {
    json!([{ "field": "version", "op": "==", "value": version }])
}

fn print_document(
    client: &Client,
    answer: &ApiResponse,
    place: &Place,
    output: Output,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    match answer.status {
        StatusCode::OK | StatusCode::CREATED => {}
        StatusCode::NOT_FOUND => return Err(not_found(place)),
        _ => return Err(client.refusal(answer)),
    }
    match output {
        Output::Json => {
            let document: Box<RawValue> = serde_json::from_slice(&answer.body)?;
            writeln!(out, "{}", document.get())?;
        }
        Output::Human => {
            let document: Map<String, Value> = parse_object(answer, "documents")?;
            print_fields(&document, "id", out)?;
        }
    }
    Ok(())
}

fn not_found(place: &Place) -> anyhow::Error {
    let path = match place {
        Place::Document(path) => path.to_string(),
        Place::Collection(path) => path.to_string(),
    };
    anyhow!("there is no document {path}; `reveille doc query` shows those of a collection")
}
