//! `reveille hooks`: subscriptions on types of events, which call workers.

use std::io::{self, BufWriter, Write};

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::Millis;
use serde_json::{Map, Value};

use super::list::{Page, fetch_page};
use super::table::{Item, ListPrinter, cell, moment_cell, print_fields};
use super::url::{encode, encode_segment};
use super::{ApiRequest, Client, Output, ServerArguments, parse_object};

/// What answers are about, and where they are.
const SUBSCRIPTIONS: &str = "subscriptions";
const PAGE: usize = 200;

/// What `reveille hooks` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Lists hooks, newest first
    #[command(after_help = "\
With --failing each hook is asked for its counts, and only those are listed that have deliveries
which failed and are tried again, or dead letters.

Example:
  reveille hooks list
  reveille hooks list --failing --output json")]
    List(List),
    /// Shows a hook, and what its deliveries have come to
    #[command(after_help = "\
Example:
  reveille hooks show 01KA9VGW3J8Y0D1T5S6R7Q8P9N")]
    Show(Show),
}

/// What `reveille hooks list` takes.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only those with deliveries that fail or were given up
    #[arg(long)]
    failing: bool,
    /// How to print them
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille hooks show` takes.
#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Its id, as `reveille hooks list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

pub(crate) fn run(command: HooksCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        HooksCommand::List(arguments) => list(arguments, &mut out),
        HooksCommand::Show(arguments) => show(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn list(arguments: List, out: &mut impl Write) -> anyhow::Result<()> {
    let List { failing, output, server } = arguments;
    let client = Client::new(server)?;
    if failing {
        let head = ["ID", "STATE", "FAILED", "DEAD LETTERS", "PATTERN", "WORKER"];
        let mut list = ListPrinter::new(output, head, failing_row);
        super::block_on(print_pages(&client, true, &mut list, out))?;
        list.finish("no hook is failing", out)?;
    } else {
        let mut list =
            ListPrinter::new(output, ["ID", "STATE", "PATTERN", "WORKER", "CREATED"], row);
        super::block_on(print_pages(&client, false, &mut list, out))?;
        list.finish("there are no hooks", out)?;
    }
    Ok(())
}

/// Prints every page. Where the server does not say how to go on they are counted from the newest:
/// one that is made meanwhile shifts them, and what was printed last is not printed again.
async fn print_pages<const N: usize>(
    client: &Client,
    failing: bool,
    list: &mut ListPrinter<N>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let (mut place, mut seen, mut last) = (String::new(), 0, None);
    loop {
        let target = format!("/subscriptions/list?limit={PAGE}{place}");
        let Page { mut items, next } = fetch_page(client, &target, SUBSCRIPTIONS).await?;
        let found = items.len();
        seen += found;
        if let Some(known) = items.iter().position(|item| Some(cell(&item.fields, "id")) == last) {
            items.drain(..=known);
        }
        last = items.last().map(|item| cell(&item.fields, "id")).or(last);
        if failing {
            items = keep_failing(client, items).await?;
        }
        list.print(&items, out)?;
        let here = match next {
            Some(next) => format!("&after={}", encode(&next)),
            None if found == PAGE => format!("&offset={seen}"),
            None => return Ok(()),
        };
        if here == place {
            bail!("the server does not get beyond a page of hooks; see its log");
        }
        place = here;
    }
}

/// Those that have something failed or given up, with their counts.
async fn keep_failing(client: &Client, items: Vec<Item>) -> anyhow::Result<Vec<Item>> {
    let mut failing = Vec::new();
    for item in items {
        let mut status = fetch_status(client, &cell(&item.fields, "id")).await?;
        let stats = status.remove("stats").unwrap_or_default();
        let count = |name| stats.get(name).and_then(Value::as_u64).unwrap_or(0);
        if count("failedDeliveries") == 0 && count("deadLetters") == 0 {
            continue;
        }
        let mut fields = item.fields;
        if let Some(object) = fields.as_object_mut() {
            object.insert("stats".to_owned(), stats);
        }
        failing.push(Item::new(fields)?);
    }
    Ok(failing)
}

fn row(hook: &Value, now: Millis) -> [String; 5] {
    [
        cell(hook, "id"),
        state(hook).to_owned(),
        cell(hook, "pattern"),
        worker(hook),
        moment_cell(hook, "createdAt", now),
    ]
}

fn failing_row(hook: &Value, _: Millis) -> [String; 6] {
    let count = |name| hook.get("stats").map(|stats| cell(stats, name)).unwrap_or_default();
    [
        cell(hook, "id"),
        state(hook).to_owned(),
        count("failedDeliveries"),
        count("deadLetters"),
        cell(hook, "pattern"),
        worker(hook),
    ]
}

fn state(hook: &Value) -> &'static str {
    let is_active = hook.get("active").and_then(Value::as_bool) == Some(true);
    if is_active { "active" } else { "inactive" }
}

/// Whom it calls: the binding, if it has one, and the method.
fn worker(hook: &Value) -> String {
    let binding = Some(cell(hook, "workerBinding")).filter(|name| !name.is_empty());
    let worker = binding.unwrap_or_else(|| cell(hook, "workerId"));
    format!("{worker}/{}", cell(hook, "rpcMethod"))
}

async fn fetch_status(client: &Client, id: &str) -> anyhow::Result<Map<String, Value>> {
    let target = format!("/subscriptions/status/{}", encode_segment(id));
    let answer = client.send(&ApiRequest::new(Method::GET, target)).await?;
    match answer.status {
        StatusCode::OK => parse_object(&answer, "hooks"),
        StatusCode::NOT_FOUND => Ok(Map::new()),
        _ => Err(client.refusal(&answer)),
    }
}

fn show(arguments: Show, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let status = super::block_on(fetch_status(&client, &arguments.id))?;
    let Some(Value::Object(hook)) = status.get("subscription") else {
        return Err(anyhow!(
            "there is no hook {:?}; `reveille hooks list` shows those that there are",
            arguments.id
        ));
    };
    match arguments.output {
        Output::Json => writeln!(out, "{:#}", Value::Object(status))?,
        Output::Human => {
            print_fields(hook, "id", out)?;
            if let Some(Value::Object(stats)) = status.get("stats") {
                writeln!(out)?;
                print_fields(stats, "", out)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_names_the_worker_by_its_binding() {
        let mut hook = json!({
            "id": "01A", "active": true, "pattern": "a.*", "workerId": "w", "workerBinding": "B",
            "rpcMethod": "on", "createdAt": 1_000,
            "stats": { "failedDeliveries": 2, "deadLetters": 1 },
        });
        assert_eq!(row(&hook, Millis(61_000)), ["01A", "active", "a.*", "B/on", "1m ago"]);
        hook["workerBinding"] = Value::Null;
        hook["active"] = false.into();
        assert_eq!(failing_row(&hook, Millis(0)), ["01A", "inactive", "2", "1", "a.*", "w/on"]);
    }
}
