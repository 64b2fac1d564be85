//! `reveille hooks`: subscriptions on types of events, which call workers.

mod change;

use std::io::{self, BufWriter, Write};

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::Millis;
use serde_json::{Map, Value};

use super::list::{ListArguments, Page, ShowArguments, fetch_page};
use super::table::{ListPrinter, cell, moment_cell, print_fields};
use super::url::{encode, encode_segment};
use super::{ApiRequest, Client, Output, parse_object};

/// What answers are about, and where they are.
const SUBSCRIPTIONS: &str = "subscriptions";
const PAGE: usize = 200;

/// What `reveille hooks` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum HooksCommand {
    /// Lists hooks, newest first
    #[command(after_help = "\
With --failing only those are listed that have deliveries which failed and are tried again, or dead
letters, with their counts.

Example:
  reveille hooks list
  reveille hooks list --failing --output json")]
    List(List),
    /// Shows a hook, and what its deliveries have come to
    #[command(after_help = "\
Example:
  reveille hooks show 01KA9VGW3J8Y0D1T5S6R7Q8P9N")]
    Show(ShowArguments),
    /// Changes whom a hook calls, what it is for, how often it tries, what signs
    #[command(after_help = "\
What waits stays, and goes where the hook points now. A pattern is for the events that come from now
on.

Example:
  reveille hooks update 01KA9VGW3J8Y0D1T5S6R7Q8P9N --worker billing-v2
  reveille hooks update 01KA9VGW3J8Y0D1T5S6R7Q8P9N --no-binding --max-retries 10")]
    Update(change::Update),
    /// Has a hook wait: what matches meanwhile is held, and nothing is lost
    #[command(after_help = "\
What has waited for longer than --retain-deliveries of the server becomes a dead letter.

Example:
  reveille hooks pause 01KA9VGW3J8Y0D1T5S6R7Q8P9N")]
    Pause(ShowArguments),
    /// Has a hook go on, with what has waited
    #[command(after_help = "\
Example:
  reveille hooks resume 01KA9VGW3J8Y0D1T5S6R7Q8P9N")]
    Resume(ShowArguments),
    /// Replaces the secret that deliveries are signed with, and prints the new one this once
    #[command(after_help = "\
Until the overlap ends deliveries have two signatures, that of the old secret first: give the new one
to the worker meanwhile.

Example:
  reveille hooks rotate-secret 01KA9VGW3J8Y0D1T5S6R7Q8P9N --overlap 24h")]
    RotateSecret(change::RotateSecret),
}

/// What `reveille hooks list` takes.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only those with deliveries that fail or were given up
    #[arg(long)]
    failing: bool,
    #[command(flatten)]
    list: ListArguments,
}

pub(crate) fn run(command: HooksCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        HooksCommand::List(arguments) => list(arguments, &mut out),
        HooksCommand::Show(arguments) => show(arguments, &mut out),
        HooksCommand::Update(arguments) => change::update(arguments, &mut out),
        HooksCommand::Pause(arguments) => change::pause(arguments, true, &mut out),
        HooksCommand::Resume(arguments) => change::pause(arguments, false, &mut out),
        HooksCommand::RotateSecret(arguments) => change::rotate_secret(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn list(arguments: List, out: &mut impl Write) -> anyhow::Result<()> {
    let List { failing, list } = arguments;
    let ListArguments { output, server } = list;
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
        let filter = if failing { "&failing=true" } else { "" };
        let target = format!("/subscriptions/list?limit={PAGE}{filter}{place}");
        let Page { mut items, next } = fetch_page(client, &target, SUBSCRIPTIONS).await?;
        let found = items.len();
        seen += found;
        if let Some(known) = items.iter().position(|item| Some(cell(&item.fields, "id")) == last) {
            items.drain(..=known);
        }
        last = items.last().map(|item| cell(&item.fields, "id")).or(last);
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
    let is = |name| hook.get(name).and_then(Value::as_bool) == Some(true);
    match (is("active"), is("paused")) {
        (false, _) => "inactive",
        (true, true) => "paused",
        (true, false) => "active",
    }
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

fn show(arguments: ShowArguments, out: &mut impl Write) -> anyhow::Result<()> {
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
