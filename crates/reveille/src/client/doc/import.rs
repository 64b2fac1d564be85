//! `reveille doc import`: documents are written in batches that can be sent again.
//!
//! Which documents are a batch follows from the input alone, and the key of a batch from what is in
//! it. So an import that is repeated comes to the same batches, and the server knows those that it
//! has done.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use http::{Method, StatusCode};
use reveille_core::document::idempotency::BodyHash;
use reveille_core::document::path::{CollectionPath, DocumentId};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::{API, parse_collection};
use crate::client::{
    ApiRequest, ApiResponse, Client, Output, ServerArguments, block_on, is_true, message, stdin,
};

/// Writes of a batch: a fraction of what a server takes, so that nobody waits for long.
const BATCH_OPS: usize = 100;
/// A transaction counts documents before and after: this leaves room for those before.
const BATCH_BYTES: usize = 1 << 20;

/// What a server says of a document, and nobody writes.
const OWN_FIELDS: [&str; 8] =
    ["collection", "createdAt", "deleted", "updatedAt", "version", "_id", "_parent", "_path"];

/// What `reveille doc import` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The collection, like rooms or rooms/r1/messages
    #[arg(value_name = "COLLECTION", value_parser = parse_collection)]
    collection: CollectionPath,
    /// Names this run: what another run has written is written once more
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    run: String,
    /// How to print what was done
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// One write of a batch, and which of the input's documents it is, from one.
struct Op {
    number: usize,
    json: Box<RawValue>,
}

/// A write as it is sent: its document character by character as it was written.
#[derive(Serialize)]
struct OpBody<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    path: String,
    data: BTreeMap<String, Box<RawValue>>,
}

#[derive(Serialize)]
struct Body<'a> {
    ops: Vec<&'a RawValue>,
}

struct Importer {
    client: Client,
    run: String,
    imported: usize,
    /// Of these, those that were there already.
    repeated: usize,
    shows_progress: bool,
}

pub(super) fn run(arguments: Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { collection, run, output, server } = arguments;
    let client = Client::new(server)?;
    let shows_progress = io::stderr().is_terminal();
    let mut importer = Importer { client, run, imported: 0, repeated: 0, shows_progress };
    let done = block_on(importer.import(&collection));
    if shows_progress && importer.imported > 0 {
        eprintln!();
    }
    let Importer { imported, repeated, .. } = importer;
    done.with_context(|| {
        format!(
            "imported {}, and nothing behind; mend what is wrong and repeat the import, which does \
             nothing twice",
            documents(imported)
        )
    })?;
    match output {
        Output::Json => {
            writeln!(out, "{}", json!({ "documents": imported, "repeated": repeated }))?;
        }
        Output::Human => writeln!(out, "imported {}", documents(imported))?,
    }
    if repeated > 0 {
        eprintln!(
            "{repeated} of them were there already, from this import; --run NAME writes them once \
             more"
        );
    }
    Ok(())
}

fn documents(count: usize) -> String {
    if count == 1 { "1 document".to_owned() } else { format!("{count} documents") }
}

impl Importer {
    async fn import(&mut self, collection: &CollectionPath) -> anyhow::Result<()> {
        let mut values = stdin::read_values();
        let (mut batch, mut bytes, mut number) = (Vec::new(), 0, 0);
        while let Some(value) = values.recv().await {
            // What was read before something that is not JSON is written all the same.
            let value = match value {
                Ok(value) => value,
                Err(error) => {
                    self.send(&batch).await?;
                    return Err(error);
                }
            };
            number += 1;
            let json = write_of(collection, &value, number)
                .with_context(|| format!("document {number} of the input"));
            let json = match json {
                Ok(json) => json,
                Err(error) => {
                    self.send(&batch).await?;
                    return Err(error);
                }
            };
            let len = json.get().len();
            if batch.len() == BATCH_OPS || (bytes + len > BATCH_BYTES && !batch.is_empty()) {
                self.send(&batch).await?;
                batch.clear();
                bytes = 0;
            }
            bytes += len;
            batch.push(Op { number, json });
        }
        self.send(&batch).await
    }

    /// Writes a batch; one that is too much for the server in two halves.
    async fn send(&mut self, batch: &[Op]) -> anyhow::Result<()> {
        let mut waiting = vec![batch];
        while let Some(batch) = waiting.pop() {
            if batch.is_empty() {
                continue;
            }
            let body = Body { ops: batch.iter().map(|op| &*op.json).collect() };
            let body = serde_json::to_vec(&body)?;
            let mut request = ApiRequest::new(Method::POST, format!("{API}/batch"));
            let key = key_of(&self.run, &body);
            request.headers.insert("idempotency-key", key.parse()?);
            request.body = body.into();
            let answer = self.client.send(&request).await?;
            match answer.status {
                StatusCode::OK => {
                    self.imported += batch.len();
                    if is_true(&answer.headers, "idempotent-replayed") {
                        self.repeated += batch.len();
                    }
                    if self.shows_progress {
                        eprint!("\r{} documents", self.imported);
                    }
                }
                StatusCode::TOO_MANY_REQUESTS if batch.len() > 1 => {
                    let (first, second) = batch.split_at(batch.len() / 2);
                    waiting.extend([second, first]);
                }
                _ => return Err(self.refusal(&answer, batch)),
            }
        }
        Ok(())
    }

    /// Which document it was, if the answer says it.
    fn refusal(&self, answer: &ApiResponse, batch: &[Op]) -> anyhow::Error {
        let json: Option<Value> = serde_json::from_slice(&answer.body).ok();
        let index = json.as_ref().and_then(|it| it.pointer("/error/details/0/opIndex")?.as_u64());
        let op = index.and_then(|index| batch.get(usize::try_from(index).ok()?));
        match op {
            Some(op) => anyhow!("document {} of the input: {}", op.number, message(answer)),
            None => self.client.refusal(answer),
        }
    }
}

/// The write of a document: under its own id, or one that is always the same for this document at
/// this place of the input.
fn write_of(
    collection: &CollectionPath,
    value: &RawValue,
    number: usize,
) -> anyhow::Result<Box<RawValue>> {
    let Ok(mut data) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(value.get()) else {
        let shown: String = value.get().chars().take(40).collect();
        bail!("{shown} is no document; a document is a JSON object");
    };
    let id = match data.remove("id") {
        Some(id) => DocumentId::from_json(&serde_json::from_str(id.get())?)?,
        None => {
            let place = format!("{collection} {number} {}", value.get());
            let hash = hex(&BodyHash::of(place.as_bytes()));
            DocumentId::parse(hash.get(..32).unwrap_or(&hash))?
        }
    };
    data.retain(|name, _| !OWN_FIELDS.contains(&name.as_str()));
    let path = collection.document(id)?.to_string();
    Ok(to_raw_value(&OpBody { kind: "set", path, data })?)
}

fn key_of(run: &str, body: &[u8]) -> String {
    let hash = hex(&BodyHash::of(&[run.as_bytes(), b"\n", body].concat()));
    format!("import-{hash}")
}

fn hex(hash: &BodyHash) -> String {
    hash.0.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, number: usize) -> anyhow::Result<Value> {
        let collection = CollectionPath::parse("rooms").unwrap();
        let value: Box<RawValue> = serde_json::from_str(text).unwrap();
        let op = write_of(&collection, &value, number)?;
        Ok(serde_json::from_str(op.get()).unwrap())
    }

    #[test]
    fn what_was_exported_is_written_under_its_id_as_it_was() {
        let exported = r#"{"id":"r1","collection":"old","version":3,"createdAt":1,"updatedAt":2,
            "n":1.10,"big":1e400,"o":{"version":1}}"#;
        let collection = CollectionPath::parse("rooms").unwrap();
        let value: Box<RawValue> = serde_json::from_str(exported).unwrap();
        let op = write_of(&collection, &value, 1).unwrap();
        let expected =
            r#"{"type":"set","path":"rooms/r1","data":{"big":1e400,"n":1.10,"o":{"version":1}}}"#;
        assert_eq!(op.get(), expected);
        assert_eq!(written(r#"{"id":7}"#, 1).unwrap()["path"], "rooms/7");
    }

    #[test]
    fn an_id_that_is_made_is_the_same_when_the_import_is_repeated() {
        let path = |text, number| written(text, number).unwrap()["path"].clone();
        let made = path(r#"{"a":1}"#, 1);
        assert_eq!(path(r#"{"a":1}"#, 1), made);
        assert_ne!(path(r#"{"a":1}"#, 2), made);
        assert_ne!(path(r#"{"a":2}"#, 1), made);
    }

    #[test]
    fn what_is_no_document_says_so() {
        let refused = |text| written(text, 1).unwrap_err().to_string();
        assert!(refused("[1]").contains("a JSON object"));
        assert!(refused(r#"{"id":""}"#).contains("not empty"));
        assert!(refused(r#"{"id":[]}"#).contains("a string"));
    }

    #[test]
    fn another_run_has_other_keys() {
        let key = key_of("", b"body");
        assert_eq!(key, key_of("", b"body"));
        assert_ne!(key, key_of("again", b"body"));
        assert_ne!(key, key_of("", b"other"));
        assert!(key.len() < 256);
    }
}
