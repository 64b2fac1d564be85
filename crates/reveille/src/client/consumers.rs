//! `reveille consumers`: who is woken, how far each is behind, what went wrong last; and waking,
//! moving and reviving one.

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::Millis;
use serde_json::{Map, Value, json};

use super::list::{ListArguments, print_list};
use super::table::{ListPrinter, Table, cell, moment_cell, print_fields};
use super::url::{encode, encode_segment};
use super::{ApiRequest, Client, Output, ServerArguments, human, parse_object};

/// Where consumers are.
const CONSUMERS: &str = "/admin/v1/consumers";
/// A consumer may follow many streams: fewer of them than of other things.
const PAGE: usize = 200;
/// What a consumer may be.
const STATES: [&str; 7] = ["idle", "collecting", "waking", "retrying", "live", "given_up", "gone"];

/// What `reveille consumers` takes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<ConsumersCommand>,
    #[command(flatten)]
    list: List,
}

/// What `reveille consumers` can do but list them.
#[derive(Debug, Subcommand)]
enum ConsumersCommand {
    /// Shows a consumer and the streams that it follows
    #[command(after_help = "\
A consumer is named by its subscription and its stream, with a colon between them, as the list shows
it; one of a subscription with leases (/v1/stream/__ds/subscriptions/) by the subscription alone.

Example:
  reveille consumers show workers:/agents/task-1")]
    Show(Show),
    /// Wakes a consumer now that has something to do, whatever it waits for
    #[command(after_help = "\
Events that are still being collected are told, and the pause after a failure ends. While a handler
is at work nothing is done, unless --force is given: then the work is taken from it.

Example:
  reveille consumers wake workers:/agents/task-1")]
    Wake(Wake),
    /// Moves a consumer to another place in its stream
    #[command(after_help = "\
Whoever is at work for it is fenced off, and the consumer is woken if there is anything to do from
there on. Without --stream it is moved in every stream that it follows.

Example:
  reveille consumers seek workers:/agents/task-1 --offset -1
  reveille consumers seek workers:/agents/task-1 --offset now")]
    Seek(Seek),
    /// Brings a consumer back that was given up because its endpoint failed for too long
    #[command(after_help = "\
It goes on where it stood: everything that came meanwhile is told. Those that were given up are
listed by `reveille consumers --state given_up`.

Example:
  reveille consumers revive workers:/agents/task-1")]
    Revive(Show),
}

/// What a list of consumers takes.
#[derive(Debug, Args)]
struct List {
    /// Only those whose endpoint did not take the last wake
    #[arg(long)]
    failing: bool,
    /// Only those in this state: idle, collecting, waking, retrying, live, given_up or gone
    #[arg(long, value_name = "STATE", value_parser = states(), hide_possible_values = true)]
    state: Option<String>,
    /// Only those of this subscription
    #[arg(long, value_name = "NAME")]
    subscription: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

/// What names a consumer, and says how it is printed.
#[derive(Debug, Args)]
struct Show {
    /// Which one: SUBSCRIPTION:/STREAM
    #[arg(value_name = "ID")]
    id: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille consumers wake` takes.
#[derive(Debug, Args)]
struct Wake {
    #[command(flatten)]
    which: Show,
    /// Also if a handler is at work, which is fenced off
    #[arg(long)]
    force: bool,
}

/// What `reveille consumers seek` takes.
#[derive(Debug, Args)]
struct Seek {
    #[command(flatten)]
    which: Show,
    /// Where it is to go on: -1 for the beginning, now for the end, or an offset
    #[arg(long, value_name = "OFFSET", allow_hyphen_values = true)]
    offset: String,
    /// In which stream, if it follows several
    #[arg(long, value_name = "STREAM")]
    stream: Option<String>,
}

fn states() -> PossibleValuesParser {
    PossibleValuesParser::new(STATES)
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match arguments.command {
        None => list(arguments.list, &mut out),
        Some(ConsumersCommand::Show(which)) => ask(which, Method::GET, "", None, &mut out),
        Some(ConsumersCommand::Wake(Wake { which, force })) => {
            ask(which, Method::POST, "/wake", Some(json!({ "force": force })), &mut out)
        }
        Some(ConsumersCommand::Seek(Seek { which, offset, stream })) => {
            let body = json!({ "offset": offset, "stream": stream });
            ask(which, Method::POST, "/seek", Some(body), &mut out)
        }
        Some(ConsumersCommand::Revive(which)) => {
            ask(which, Method::POST, "/revive", Some(json!({})), &mut out)
        }
    }?;
    out.flush()?;
    Ok(())
}

fn list(arguments: List, out: &mut impl Write) -> anyhow::Result<()> {
    let List { failing, state, subscription, list } = arguments;
    let ListArguments { output, server } = list;
    let client = Client::new(server)?;
    let mut target = format!("{CONSUMERS}?limit={PAGE}");
    if let Some(name) = &subscription {
        target.push_str(&format!("&subscription={}", encode(name)));
    }
    if let Some(state) = &state {
        target.push_str(&format!("&state={state}"));
    }
    let is_wanted = |consumer: &Value| !failing || is_failing(consumer);
    let head = ["CONSUMER", "STATE", "LAG", "FAILING SINCE", "NEXT ATTEMPT", "LAST ERROR"];
    let mut list = ListPrinter::new(output, head, row);
    super::block_on(print_list(&client, &target, "consumers", is_wanted, &mut list, out))?;
    list.finish("there are no such consumers", out)?;
    Ok(())
}

/// Whether its endpoint did not take the last wake.
fn is_failing(consumer: &Value) -> bool {
    consumer.get("failing_since").is_some_and(|since| !since.is_null())
        || cell(consumer, "state") == "retrying"
}

fn row(consumer: &Value, now: Millis) -> [String; 6] {
    [
        display_id(consumer),
        cell(consumer, "state"),
        lag(consumer),
        moment_cell(consumer, "failing_since", now),
        moment_cell(consumer, "next_attempt_at", now),
        human::shorten(&last_error(consumer)),
    ]
}

/// How it is called on the command line; there a path need not be encoded.
fn display_id(consumer: &Value) -> String {
    match consumer.get("primary_stream").and_then(Value::as_str) {
        Some(stream) => format!("{}:{stream}", cell(consumer, "subscription")),
        None => cell(consumer, "id"),
    }
}

/// How much is waiting for it, as far as it is shown.
fn lag(consumer: &Value) -> String {
    let bytes = |value: &Value| value.get("lag_bytes").and_then(Value::as_u64);
    if let Some(all) = bytes(consumer) {
        return human::size(all);
    }
    let streams = consumer.get("streams").and_then(Value::as_array);
    let shown = streams.into_iter().flatten().filter_map(bytes);
    let shown = shown.fold(0, u64::saturating_add);
    let has_more = consumer.get("more_streams").and_then(Value::as_bool) == Some(true);
    format!("{}{}", human::size(shown), if has_more { "+" } else { "" })
}

fn last_error(consumer: &Value) -> String {
    consumer.get("last_error").map(|error| cell(error, "message")).unwrap_or_default()
}

/// Asks for a consumer, or for something to be done to it, and prints it as it is then.
fn ask(
    arguments: Show,
    method: Method,
    verb: &str,
    body: Option<Value>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let target = format!("{CONSUMERS}/{}{verb}", encode_id(&arguments.id));
    let mut request = ApiRequest::new(method, target);
    if let Some(body) = body {
        request.body = body.to_string().into();
    }
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    match answer.status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => {
            return Err(anyhow!(
                "there is no consumer {:?} ({}); `reveille consumers` shows those that there are",
                arguments.id,
                super::message(&answer)
            ));
        }
        _ => return Err(client.refusal(&answer)),
    }
    let consumer = parse_object(&answer, "consumers")?;
    match arguments.output {
        Output::Json => writeln!(out, "{:#}", Value::Object(consumer))?,
        Output::Human => print_consumer(consumer, out)?,
    }
    Ok(())
}

/// A name as a segment of a path: in notifications its stream is encoded once, in lists it is not.
fn encode_id(id: &str) -> String {
    match id.split_once(':') {
        Some((subscription, path)) if path.starts_with('/') => {
            format!("{}:{}", encode_segment(subscription), encode_segment(path))
        }
        Some(_) => id.to_owned(),
        None => encode_segment(id),
    }
}

fn print_consumer(mut consumer: Map<String, Value>, out: &mut impl Write) -> io::Result<()> {
    let streams = consumer.remove("streams");
    let error = consumer.remove("last_error");
    if let Some(error) = error.filter(|error| !error.is_null()) {
        for (name, of) in [("last_error", "message"), ("last_error_at", "at")] {
            consumer.insert(name.to_owned(), error.get(of).cloned().unwrap_or_default());
        }
    }
    print_fields(&consumer, "id", out)?;
    let Some(Value::Array(streams)) = streams else { return Ok(()) };
    let size = |stream: &Value| stream.get("lag_bytes").and_then(Value::as_u64).unwrap_or(0);
    let rows = streams.iter().map(|stream| {
        let [path, acked, tail] = ["path", "acked", "tail"].map(|name| cell(stream, name));
        [path, human::size(size(stream)), acked, tail]
    });
    writeln!(out)?;
    Table::new(["STREAM", "LAG", "ACKED", "TAIL"]).print(rows.collect(), out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_how_far_it_is_behind() {
        let now = Millis(1_000_000);
        let consumer = json!({
            "id": "s:%2Fa%2Fb", "subscription": "s", "primary_stream": "/a/b", "state": "retrying",
            "streams": [{ "lag_bytes": 1000 }, { "lag_bytes": 536 }], "more_streams": true,
            "failing_since": 700_000, "next_attempt_at": 1_012_000,
            "last_error": { "at": 1, "message": "503" },
        });
        let expected = ["s:/a/b", "retrying", "1.5 KiB+", "5m ago", "in 12s", "503"];
        assert_eq!(row(&consumer, now), expected);
        assert!(is_failing(&consumer));
        let consumer = json!({
            "id": "pool", "subscription": "pool", "primary_stream": null, "state": "idle",
            "lag_bytes": 7, "streams": [], "last_error": null, "failing_since": null,
        });
        assert_eq!(row(&consumer, now), ["pool", "idle", "7 B", "", "", ""]);
        assert!(!is_failing(&consumer));
    }

    #[test]
    fn names_are_taken_as_lists_and_as_notifications_write_them() {
        assert_eq!(encode_id("s:/a/b%20c"), "s:%2Fa%2Fb%2520c");
        assert_eq!(encode_id("s:%2Fa%2Fb%2520c"), "s:%2Fa%2Fb%2520c");
        assert_eq!(encode_id("pool"), "pool");
        assert_eq!(encode_id("a/b ?"), "a%2Fb%20%3F");
    }
}
