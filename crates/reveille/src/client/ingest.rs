//! `reveille ingest`: events are handed over in batches, each taken in once however often it is sent.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufWriter, Write};

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;
use http::{Method, StatusCode};
use reveille_core::event::EventType;
use reveille_core::limits::EVENT_BATCH_MAX;
use reveille_engine::doors::{Entropy as _, SystemEntropy};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;

use super::{ApiRequest, Client, Output, ServerArguments, parse_object, stdin};
use crate::failure::usage_error;

/// Events that are waiting travel together, up to this many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// The fields of an event, their values as they were written.
type Fields = BTreeMap<String, Box<RawValue>>;

/// What `reveille ingest` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Events as JSON: one, an array of them, or {"events": […]}; `-` or nothing: standard input,
    /// where one may follow another
    #[arg(value_name = "JSON", conflicts_with = "kind")]
    events: Option<String>,
    /// Makes one event of this type
    #[arg(long = "type", value_name = "TYPE", value_parser = parse_type)]
    kind: Option<EventType>,
    /// What else is in the event that --type makes: a JSON object
    #[arg(long, value_name = "JSON", requires = "kind", value_parser = parse_data)]
    data: Option<Fields>,
    /// A name for all of these events together: a batch whose name was there within a day is not
    /// taken in again
    #[arg(long, value_name = "ID")]
    batch_id: Option<String>,
    /// How to print what was taken in: the ids of events, or the server's answers, a line each
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

fn parse_type(text: &str) -> Result<EventType, String> {
    EventType::parse(text).map_err(|error| error.to_string())
}

fn parse_data(text: &str) -> Result<Fields, String> {
    serde_json::from_str(text).map_err(|error| format!("write a JSON object ({error})"))
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { events, kind, data, batch_id, output, server } = arguments;
    let client = Client::new(server)?;
    let values = match (kind, events.filter(|text| text != "-")) {
        (Some(kind), _) => ready(vec![made_event(&kind, data)?]),
        (None, Some(text)) => ready(parse_values(&text)?),
        (None, None) => stdin::read_values(),
    };
    let batches = BatchReader { values, events: VecDeque::new(), named: None };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut sender =
        BatchSender { client, output, prefix: random_prefix(), batches: 0, taken_in: 0 };
    super::block_on(async {
        match batch_id {
            Some(id) => sender.send(batches.all(id).await?, &mut out).await,
            None => sender.send_all(batches, &mut out).await,
        }
    })?;
    if sender.batches == 0 {
        return Err(anyhow!("there is no event; give one, or pipe some in"));
    }
    out.flush()?;
    Ok(())
}

/// The event of `--type` and `--data`.
fn made_event(kind: &EventType, data: Option<Fields>) -> anyhow::Result<Box<RawValue>> {
    let mut event = data.unwrap_or_default();
    if event.insert("type".to_owned(), to_raw_value(kind.as_str())?).is_some() {
        return Err(usage_error("--data has a `type` of its own; leave it out, or --type"));
    }
    Ok(to_raw_value(&event)?)
}

fn parse_values(text: &str) -> anyhow::Result<Vec<Box<RawValue>>> {
    let values = serde_json::Deserializer::from_str(text).into_iter();
    let values: Result<_, _> = values.collect();
    values.map_err(|error| usage_error(format!("the events are not JSON ({error})")))
}

/// Values that are all there already.
fn ready(values: Vec<Box<RawValue>>) -> mpsc::Receiver<anyhow::Result<Box<RawValue>>> {
    let (sender, receiver) = mpsc::channel(values.len().max(1));
    for value in values {
        sender.try_send(Ok(value)).expect("there is room for all of them");
    }
    receiver
}

fn random_prefix() -> String {
    let mut random = [0; 16];
    SystemEntropy::default().fill(&mut random);
    format!("cli-{:032x}", u128::from_le_bytes(random))
}

/// Events that are sent together.
struct Batch {
    events: Vec<Box<RawValue>>,
    id: Option<String>,
}

/// A batch as it is sent: its events character by character as they were written.
#[derive(Serialize)]
struct Body<'a> {
    events: &'a [Box<RawValue>],
    #[serde(rename = "batchId")]
    batch_id: &'a str,
}

struct BatchSender {
    client: Client,
    output: Output,
    /// Of the names of batches that have none.
    prefix: String,
    batches: u64,
    taken_in: u64,
}

impl BatchSender {
    async fn send_all(
        &mut self,
        mut batches: BatchReader,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        let progress = |done: u64| format!("{done} events are taken in, those behind them are not");
        loop {
            let done = self.taken_in;
            let Some(batch) = batches.next().await.with_context(|| progress(done))? else {
                return Ok(());
            };
            self.send(batch, out).await.with_context(|| progress(done))?;
        }
    }

    async fn send(&mut self, batch: Batch, out: &mut impl Write) -> anyhow::Result<()> {
        self.batches += 1;
        let id = batch.id.unwrap_or_else(|| format!("{}-{}", self.prefix, self.batches));
        let mut request = ApiRequest::new(Method::POST, "/ingest");
        request.body = serde_json::to_vec(&Body { events: &batch.events, batch_id: &id })?.into();
        let answer = self.client.send(&request).await?;
        if answer.status != StatusCode::OK {
            return Err(self.client.refusal(&answer));
        }
        self.taken_in += u64::try_from(batch.events.len())?;
        let answer = parse_object(&answer, "events")?;
        match self.output {
            Output::Json => writeln!(out, "{}", Value::Object(answer.clone()))?,
            Output::Human => {
                let ids = answer.get("eventIds").and_then(Value::as_array);
                for id in ids.into_iter().flatten().filter_map(Value::as_str) {
                    writeln!(out, "{id}")?;
                }
            }
        }
        out.flush()?;
        if answer.get("deduplicated") == Some(&Value::Bool(true)) {
            eprintln!("batch {id} was there already: nothing is taken in twice");
        }
        Ok(())
    }
}

/// Events on their way into batches.
struct BatchReader {
    values: mpsc::Receiver<anyhow::Result<Box<RawValue>>>,
    /// Events that did not fit into the batch before.
    events: VecDeque<Box<RawValue>>,
    /// A batch with a name of its own, which goes alone.
    named: Option<Batch>,
}

impl BatchReader {
    /// The next batch: as many events as are waiting.
    async fn next(&mut self) -> anyhow::Result<Option<Batch>> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        loop {
            while let Some(event) = self.events.pop_front() {
                let length = event.get().len();
                let is_full = events.len() == EVENT_BATCH_MAX || bytes + length > BATCH_BYTES_MAX;
                if is_full && !events.is_empty() {
                    self.events.push_front(event);
                    return Ok(Some(Batch { events, id: None }));
                }
                bytes += length;
                events.push(event);
            }
            if !events.is_empty() {
                // A named batch waits for its turn, and nothing is read beyond it.
                let waiting = self.named.is_none().then(|| self.values.try_recv().ok()).flatten();
                let Some(value) = waiting else { return Ok(Some(Batch { events, id: None })) };
                self.push(value?)?;
            } else if let Some(named) = self.named.take() {
                return Ok(Some(named));
            } else {
                let Some(value) = self.values.recv().await else { return Ok(None) };
                self.push(value?)?;
            }
        }
    }

    /// Everything up to the end, under this name.
    async fn all(mut self, id: String) -> anyhow::Result<Batch> {
        while let Some(value) = self.values.recv().await {
            self.push(value?)?;
            if let Some(named) = self.named.take() {
                self.events.extend(named.events);
            }
            if self.events.len() > EVENT_BATCH_MAX {
                return Err(usage_error(format!(
                    "--batch-id is for one batch, and a batch has at most {EVENT_BATCH_MAX} events; \
                     send fewer, or leave it out"
                )));
            }
        }
        ensure!(!self.events.is_empty(), "there is no event; give one, or pipe some in");
        Ok(Batch { events: self.events.into(), id: Some(id) })
    }

    fn push(&mut self, value: Box<RawValue>) -> anyhow::Result<()> {
        match parse_batch(&value)? {
            None => self.events.push_back(value),
            Some(Batch { events, id: None }) => self.events.extend(events),
            Some(named) => self.named = Some(named),
        }
        Ok(())
    }
}

/// The batch that a value is; `None` for a single event.
fn parse_batch(value: &RawValue) -> anyhow::Result<Option<Batch>> {
    #[derive(Deserialize)]
    struct Members {
        #[serde(rename = "type")]
        kind: Option<IgnoredAny>,
        events: Option<Vec<Box<RawValue>>>,
        #[serde(rename = "batchId")]
        batch_id: Option<String>,
    }
    let text = value.get();
    match text.as_bytes().first() {
        Some(b'[') => Ok(Some(Batch { events: serde_json::from_str(text)?, id: None })),
        Some(b'{') => {
            // What is no batch is judged by the server.
            let Ok(members) = serde_json::from_str::<Members>(text) else { return Ok(None) };
            let Members { kind: None, events: Some(events), batch_id } = members else {
                return Ok(None);
            };
            Ok(Some(Batch { events, id: batch_id }))
        }
        _ => Err(anyhow!(
            "{} is no event; an event is a JSON object with a `type`",
            text.chars().take(40).collect::<String>()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn batches(text: &str) -> Vec<(Vec<String>, Option<String>)> {
        let values = ready(parse_values(text).unwrap());
        let mut batches = BatchReader { values, events: VecDeque::new(), named: None };
        let mut seen = Vec::new();
        while let Some(Batch { events, id }) = batches.next().await.unwrap() {
            seen.push((events.iter().map(|event| event.get().to_owned()).collect(), id));
        }
        seen
    }

    #[tokio::test]
    async fn what_waits_travels_together_and_named_batches_alone() {
        let text = r#"{"type":"a","n":1.0} [{"type":"b"},{"type":"c"}]
            {"events":[{"type":"d"}]} {"events":[{"type":"e"}],"batchId":"x"} {"type":"f"}
            {"type":"g","events":[1]}"#;
        let expected = [
            (
                vec![
                    r#"{"type":"a","n":1.0}"#,
                    r#"{"type":"b"}"#,
                    r#"{"type":"c"}"#,
                    r#"{"type":"d"}"#,
                ],
                None,
            ),
            (vec![r#"{"type":"e"}"#], Some("x".to_owned())),
            (vec![r#"{"type":"f"}"#, r#"{"type":"g","events":[1]}"#], None),
        ];
        let expected =
            expected.map(|(events, id)| (events.into_iter().map(str::to_owned).collect(), id));
        assert_eq!(batches(text).await, expected);
        assert_eq!(batches("[] []").await, []);
    }

    #[tokio::test]
    async fn a_batch_ends_before_it_is_too_large() {
        let event = format!("{{\"type\":\"a\",\"text\":\"{}\"}}", "x".repeat(200_000));
        let sizes = |batches: Vec<(Vec<String>, _)>| -> Vec<usize> {
            batches.into_iter().map(|(events, _)| events.len()).collect()
        };
        assert_eq!(sizes(batches(&event.repeat(11)).await), [5, 5, 1]);
        assert_eq!(sizes(batches(&"{\"type\":\"a\"}\n".repeat(2_001)).await), [1_000, 1_000, 1]);
    }

    #[test]
    fn a_type_is_said_once() {
        let data = parse_data(r#"{"n": 1e400, "a": 1.10}"#).unwrap();
        let kind = EventType::parse("a.b").unwrap();
        let event = made_event(&kind, Some(data)).unwrap();
        assert_eq!(event.get(), r#"{"a":1.10,"n":1e400,"type":"a.b"}"#);
        let data = parse_data(r#"{"type": "c"}"#).unwrap();
        assert!(made_event(&kind, Some(data)).is_err());
    }
}
