//! `reveille deliveries`: what became of each event, hook by hook.

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::Millis;
use serde_json::{Map, Value};

use super::list::{ListArguments, ShowArguments, print_list};
use super::table::{ListPrinter, Table, cell, moment_cell, print_fields};
use super::url::{encode, encode_segment};
use super::{ApiRequest, Client, Output, ServerArguments, human, parse_object};
use crate::clock;

/// Where deliveries are.
const DELIVERIES: &str = "/admin/v1/deliveries";
const PAGE: usize = 1_000;
/// What a delivery may be.
const STATES: [&str; 5] = ["pending", "failed", "delivered", "dead", "dropped"];
/// Those of which somebody should know.
const FAILING: [&str; 2] = ["failed", "dead"];

/// What `reveille deliveries` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum DeliveriesCommand {
    /// Lists deliveries: hook by hook, those of the newest event first
    #[command(after_help = "\
A delivery is pending until it is tried, failed while it is tried again, and in the end delivered,
dead (it was given up) or dropped (it was not wanted any more).

Example:
  reveille deliveries list --failing
  reveille deliveries list --hook 01KA9VGW3J8Y0D1T5S6R7Q8P9N --state dead --output json")]
    List(List),
    /// Shows a delivery with each of its attempts
    #[command(after_help = "\
Example:
  reveille deliveries show 01KA9VGW3J8Y0D1T5S6R7Q8P9N")]
    Show(ShowArguments),
    /// Says step by step why an event was delivered to a hook, or was not
    #[command(after_help = "\
Example:
  reveille deliveries explain evt-1 --hook 01KA9VGW3J8Y0D1T5S6R7Q8P9N")]
    Explain(Explain),
}

/// What `reveille deliveries list` takes.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only those that failed and are tried again, and those that were given up
    #[arg(long)]
    failing: bool,
    /// Only those in this state: pending, failed, delivered, dead or dropped
    #[arg(long, value_name = "STATE", value_parser = states(), hide_possible_values = true)]
    state: Option<String>,
    /// Only those of this hook
    #[arg(long, value_name = "ID")]
    hook: Option<String>,
    /// Only those of this event
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

/// What `reveille deliveries explain` takes.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The id of the event
    #[arg(value_name = "EVENT")]
    event: String,
    /// The id of the hook
    #[arg(long, value_name = "ID")]
    hook: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

fn states() -> PossibleValuesParser {
    PossibleValuesParser::new(STATES)
}

pub(crate) fn run(command: DeliveriesCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        DeliveriesCommand::List(arguments) => list(arguments, &mut out),
        DeliveriesCommand::Show(arguments) => show(arguments, &mut out),
        DeliveriesCommand::Explain(arguments) => explain(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn list(arguments: List, out: &mut impl Write) -> anyhow::Result<()> {
    let List { failing, state, hook, event, list } = arguments;
    let ListArguments { output, server } = list;
    let client = Client::new(server)?;
    let mut target = format!("{DELIVERIES}?limit={PAGE}");
    for (name, id) in [("hook", &hook), ("event", &event), ("state", &state)] {
        if let Some(id) = id {
            target.push_str(&format!("&{name}={}", encode(id)));
        }
    }
    let is_wanted = |delivery: &Value| {
        let found = cell(delivery, "state");
        (!failing || FAILING.contains(&found.as_str()))
            && state.as_ref().is_none_or(|state| *state == found)
    };
    let head = ["ID", "HOOK", "TYPE", "STATE", "ATTEMPTS", "CREATED", "NEXT ATTEMPT", "LAST ERROR"];
    let mut list = ListPrinter::new(output, head, row);
    super::block_on(print_list(&client, &target, "deliveries", is_wanted, &mut list, out))?;
    list.finish("there are no such deliveries", out)?;
    Ok(())
}

fn row(delivery: &Value, now: Millis) -> [String; 8] {
    [
        cell(delivery, "id"),
        cell(delivery, "hook"),
        cell(delivery, "event_type"),
        cell(delivery, "state"),
        cell(delivery, "attempts_made"),
        moment_cell(delivery, "created_at", now),
        moment_cell(delivery, "next_attempt_at", now),
        human::shorten(&cell(delivery, "last_error")),
    ]
}

fn show(arguments: ShowArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let target = format!("{DELIVERIES}/{}", encode_segment(&arguments.id));
    let request = ApiRequest::new(Method::GET, target);
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    match answer.status {
        StatusCode::OK => {}
        StatusCode::NOT_FOUND => {
            return Err(anyhow!(
                "there is no delivery {:?}; `reveille deliveries list` shows those that there are",
                arguments.id
            ));
        }
        _ => return Err(client.refusal(&answer)),
    }
    let delivery = parse_object(&answer, "deliveries")?;
    match arguments.output {
        Output::Json => writeln!(out, "{:#}", Value::Object(delivery))?,
        Output::Human => print_delivery(delivery, out)?,
    }
    Ok(())
}

fn explain(arguments: Explain, out: &mut impl Write) -> anyhow::Result<()> {
    let Explain { event, hook, output, server } = arguments;
    let client = Client::new(server)?;
    let query = format!("hook={}&event={}", encode(&hook), encode(&event));
    let request = ApiRequest::new(Method::GET, format!("{DELIVERIES}/explain?{query}"));
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    if answer.status != StatusCode::OK {
        return Err(client.refusal(&answer));
    }
    let mut explained = parse_object(&answer, "an explanation")?;
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(explained))?,
        Output::Human => {
            let steps = explained.remove("steps");
            print_fields(&explained, "hook", out)?;
            let steps = steps.as_ref().and_then(Value::as_array);
            let is_for = |step: &Value| step.get("ok").and_then(Value::as_bool) == Some(true);
            let rows = steps.into_iter().flatten().map(|step| {
                let sign = if is_for(step) { "yes" } else { "no" };
                [cell(step, "step"), sign.to_owned(), cell(step, "detail")]
            });
            writeln!(out)?;
            Table::new(["STEP", "OK", "DETAIL"]).print(rows.collect(), out)?;
        }
    }
    Ok(())
}

fn print_delivery(mut delivery: Map<String, Value>, out: &mut impl Write) -> io::Result<()> {
    let attempts = delivery.remove("attempts");
    print_fields(&delivery, "id", out)?;
    let Some(Value::Array(attempts)) = attempts.filter(|it| *it != Value::Array(Vec::new())) else {
        return Ok(());
    };
    let now = clock::now();
    let took = |attempt: &Value| attempt.get("took_ms").and_then(Value::as_u64);
    let rows = attempts.iter().map(|attempt| {
        [
            cell(attempt, "number"),
            moment_cell(attempt, "at", now),
            took(attempt).map(human::period).unwrap_or_default(),
            cell(attempt, "status"),
            cell(attempt, "error"),
        ]
    });
    writeln!(out)?;
    Table::new(["ATTEMPT", "AT", "TOOK", "STATUS", "ERROR"]).print(rows.collect(), out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_says_when_it_is_tried_again() {
        let delivery = json!({
            "id": "01D", "hook": "01H", "event_type": "a.b", "state": "failed",
            "attempts_made": 2, "created_at": 0, "next_attempt_at": 64_000, "last_error": "503",
        });
        let expected = ["01D", "01H", "a.b", "failed", "2", "1m ago", "in 4s", "503"];
        assert_eq!(row(&delivery, Millis(60_000)), expected);
    }
}
