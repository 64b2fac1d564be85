//! `reveille doc watch`: the documents of a collection, then what becomes of them.

use std::io::Write;

use anyhow::{Context as _, anyhow};
use clap::Args;
use http::header::HeaderValue;
use http::{HeaderName, Method, StatusCode};
use http_body_util::BodyExt as _;
use reveille_core::document::live::LivePlace;
use reveille_core::document::path::CollectionPath;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::query::{FilterText, data_of, filters_of, parse_filter};
use super::{API, parse_collection};
use crate::client::url::encode;
use crate::client::{
    ApiRequest, Client, Output, RetryPolicy, ServerArguments, Unavailable, human, root_cause,
    unexpected_answer,
};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What `reveille doc watch` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The collection, like rooms or rooms/r1/messages
    #[arg(value_name = "COLLECTION", value_parser = parse_collection)]
    collection: CollectionPath,
    /// Only documents of which this is true (repeatable)
    #[arg(long = "where", value_name = "FILTER", value_parser = parse_filter)]
    filters: Vec<FilterText>,
    /// Goes on after the event of this id, instead of with what is there
    #[arg(long, value_name = "ID", value_parser = parse_place)]
    after: Option<String>,
    /// How to print events: a line each
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

fn parse_place(text: &str) -> Result<String, String> {
    let place = text.parse::<LivePlace>().map(|_| text.to_owned());
    place.map_err(|_| "it is the id of an event, like `17`".to_owned())
}

/// Somebody who follows, and the event that they have come to.
struct Watch<'w, W> {
    client: Client,
    target: String,
    last_id: String,
    output: Output,
    out: &'w mut W,
}

/// An event, as it came.
#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    kind: String,
    id: Option<String>,
    data: String,
}

pub(super) fn run(arguments: Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { collection, filters, after, output, server } = arguments;
    let mut target = format!("{API}/{collection}?live=sse");
    if !filters.is_empty() {
        target.push_str("&filters=");
        target.push_str(&encode(&filters_of(filters).to_string()));
    }
    let client = Client::new(server)?;
    let mut watch = Watch { client, target, last_id: after.unwrap_or_default(), output, out };
    super::super::block_on(watch.follow())
}

impl<W: Write> Watch<'_, W> {
    /// Prints events for ever: whenever the connection is lost it goes on where it stood.
    async fn follow(&mut self) -> anyhow::Result<()> {
        let mut retry = RetryPolicy::unlimited();
        let mut is_waiting = false;
        loop {
            let mut has_come = false;
            let Err(error) = self.read(&mut has_come).await;
            let error = error.downcast::<Unavailable>()?;
            self.out.flush()?;
            if has_come {
                retry.reset();
                is_waiting = false;
            }
            if let Unavailable::Lost { url, cause } | Unavailable::Busy { url, cause, .. } = &error
                && !std::mem::replace(&mut is_waiting, true)
            {
                eprintln!("waiting for {url} ({cause}); it goes on as soon as it answers");
            }
            retry.wait(error).await?;
        }
    }

    /// Prints events until the connection is lost.
    async fn read(&mut self, has_come: &mut bool) -> anyhow::Result<std::convert::Infallible> {
        let mut request = ApiRequest::new(Method::GET, self.target.clone());
        if !self.last_id.is_empty() {
            request.headers.insert(LAST_EVENT_ID, HeaderValue::from_str(&self.last_id)?);
        }
        let response = self.client.send_once(&request).await?;
        if response.status() != StatusCode::OK {
            let answer = self.client.read_response(response).await?;
            return Err(match self.client.busy(&answer) {
                Some(busy) => busy.into(),
                None => self.client.refusal(&answer),
            });
        }
        let mut body = response.into_body();
        let mut text = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return Err(self.client.lost(root_cause(&error)).into()),
            };
            let Some(bytes) = frame.data_ref() else { continue };
            // Where an event may end: what was there before has none.
            let mut from = text.len().saturating_sub(1);
            text.extend_from_slice(bytes);
            while let Some(end) = find_end(&text, from) {
                let rest = text.split_off(end);
                let event = parse(&std::mem::replace(&mut text, rest))?;
                from = 0;
                *has_come = true;
                self.print(event)?;
            }
            self.out.flush()?;
        }
        Err(self.client.lost("the server ended the answer".to_owned()).into())
    }

    fn print(&mut self, event: Event) -> anyhow::Result<()> {
        let Event { kind, id, data } = event;
        if let Some(id) = id {
            self.last_id = id;
        }
        if data.is_empty() {
            return Ok(());
        }
        let out = &mut self.out;
        match self.output {
            Output::Json => {
                let (event, id) = (Value::from(kind), Value::from(self.last_id.as_str()));
                writeln!(out, "{{\"event\":{event},\"id\":{id},\"data\":{data}}}")?;
            }
            Output::Human => {
                let data: Map<String, Value> =
                    serde_json::from_str(&data).with_context(|| unexpected_answer("events"))?;
                writeln!(out, "{}", line(&kind, &data))?;
            }
        }
        Ok(())
    }
}

/// What an event says, on one line.
fn line(kind: &str, data: &Map<String, Value>) -> String {
    let text = |name: &str| match data.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    let document = |document: &Map<String, Value>| {
        let id = document.get("id").and_then(Value::as_str).unwrap_or_default();
        let version = document.get("version").cloned().unwrap_or_default();
        let data = human::shorten(&Value::Object(data_of(document)).to_string());
        format!("{id}  version {version}  {data}")
    };
    match kind {
        "document" => format!("document  {}", document(data)),
        "change" => {
            let empty = Map::new();
            let changed = data.get("document").and_then(Value::as_object).unwrap_or(&empty);
            format!("{:<8}  {}", text("type"), document(changed))
        }
        "removed" => format!("removed   {}", text("id")),
        "ready" => format!("ready     as of change {}", text("seq")),
        "reset" => format!("reset     {}", text("reason")),
        other => format!("{other:<8}  {}", Value::Object(data.clone())),
    }
}

/// Where the first event ends.
fn find_end(text: &[u8], from: usize) -> Option<usize> {
    let found = text.get(from..)?.windows(2).position(|pair| pair == b"\n\n")?;
    Some(from + found + 2)
}

fn parse(text: &[u8]) -> anyhow::Result<Event> {
    let unreadable = || anyhow!(unexpected_answer("events"));
    let text = std::str::from_utf8(text).map_err(|_| unreadable())?;
    let mut event = Event::default();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(':')) {
        let (name, value) = line.split_once(':').ok_or_else(unreadable)?;
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut event.kind),
            "id" => event.id = Some(value.to_owned()),
            "data" => {
                // What is printed is passed on as it is: it must be JSON, and on one line.
                serde_json::from_str::<&RawValue>(value).map_err(|_| unreadable())?;
                value.clone_into(&mut event.data);
            }
            _ => {}
        }
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_one_by_one() {
        let text = b"event: ready\nid: 3\ndata: {\"seq\":3}\n\n:\n\n";
        let end = find_end(text, 0).unwrap();
        assert!(text[..end].ends_with(b"}\n\n") && find_end(text, end - 1) == Some(text.len()));
        let event = parse(&text[..end]).unwrap();
        assert_eq!((event.kind.as_str(), event.id.as_deref()), ("ready", Some("3")));
        assert_eq!(event.data, "{\"seq\":3}");
        assert_eq!(parse(&text[end..]).unwrap(), Event::default());
        assert_eq!(parse(b"id:\n\n").unwrap().id.as_deref(), Some(""));
        assert!(parse(b"data: {\n\n").is_err());
    }

    #[test]
    fn an_event_is_a_line() {
        let check = |kind: &str, data: &str, expected: &str| {
            assert_eq!(line(kind, &serde_json::from_str(data).unwrap()), expected);
        };
        check("document", r#"{"id":"a","version":2,"n":1}"#, "document  a  version 2  {\"n\":1}");
        let change = r#"{"seq":4,"type":"update","document":{"id":"a","version":3,"n":2}}"#;
        check("change", change, "update    a  version 3  {\"n\":2}");
        check("removed", r#"{"id":"a"}"#, "removed   a");
        check("ready", r#"{"seq":4}"#, "ready     as of change 4");
        check("reset", r#"{"reason":"so"}"#, "reset     so");
    }
}
