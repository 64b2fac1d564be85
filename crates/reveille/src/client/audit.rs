//! `reveille audit`: who changed what, and whether the log is as it was written.

use std::io::{self, BufWriter, Write};

use anyhow::bail;
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::Millis;
use serde_json::Value;

use super::list::print_list;
use super::table::{ListPrinter, Table, cell, moment_cell};
use super::url::encode;
use super::{ApiRequest, Client, Output, ServerArguments, human, parse_object};

const AUDIT: &str = "/admin/v1/audit";
const PAGE: usize = 1_000;

/// What `reveille audit` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Lists who changed what, newest first
    #[command(after_help = "\
Example:
  reveille audit list
  reveille audit list --trigger order-paid --from 2026-01-31T12:00:00Z
  reveille audit list --action replay.executed --actor key_019a8b7c6d512345678 --output json")]
    List(List),
    /// Checks that no row was changed, removed or added
    #[command(after_help = "\
The rows of each tenant are a chain of hashes. Whoever can write to the server's disk can write a
whole new chain: keep the hash that is printed somewhere else, and look for it among the rows later
(`reveille audit list --output json`).

Example:
  reveille audit verify
  reveille audit verify --tenant acme")]
    Verify(Verify),
}

/// What `reveille audit list` takes.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only this, such as key.created or replay.executed
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,
    /// Only what this key did, by its id; `local` without keys
    #[arg(long, value_name = "ID")]
    actor: Option<String>,
    /// Only what was done to this, by its id or name
    #[arg(long, value_name = "ID")]
    subject: Option<String>,
    /// Only what was done to this trigger
    #[arg(long, value_name = "ID", conflicts_with = "subject")]
    trigger: Option<String>,
    /// Only what was done at this time or later
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only what was done before this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille audit verify` takes.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

pub(crate) fn run(command: AuditCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        AuditCommand::List(arguments) => list(arguments, &mut out),
        AuditCommand::Verify(arguments) => verify(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn list(arguments: List, out: &mut impl Write) -> anyhow::Result<()> {
    let List { action, actor, subject, trigger, from, to, output, server } = arguments;
    let client = Client::new(server)?;
    let mut target = format!("{AUDIT}?limit={PAGE}");
    let filters = [
        ("action", action),
        ("actor", actor),
        ("subject", subject),
        ("triggerId", trigger),
        ("from", from),
        ("to", to),
    ];
    for (name, value) in filters {
        if let Some(value) = value {
            target.push_str(&format!("&{name}={}", encode(&value)));
        }
    }
    let head = ["AT", "TENANT", "ACTOR", "ACTION", "SUBJECT", "REASON"];
    let mut list = ListPrinter::new(output, head, row);
    super::block_on(print_list(&client, &target, "audit", |_| true, &mut list, out))?;
    list.finish("nothing was written down", out)?;
    Ok(())
}

fn row(row: &Value, now: Millis) -> [String; 6] {
    [
        moment_cell(row, "at", now),
        cell(row, "tenant"),
        cell(row, "actor"),
        cell(row, "action"),
        cell(row, "subject"),
        human::shorten(&cell(row, "reason")),
    ]
}

fn verify(arguments: Verify, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let request = ApiRequest::new(Method::GET, format!("{AUDIT}/verify"));
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    if answer.status != StatusCode::OK {
        return Err(client.refusal(&answer));
    }
    let checked = Value::Object(parse_object(&answer, "the audit log")?);
    match arguments.output {
        Output::Json => writeln!(out, "{checked:#}")?,
        Output::Human => {
            let chains = checked.get("chains").and_then(Value::as_array).cloned();
            let chains = chains.unwrap_or_default();
            let rows = chains.iter().map(|chain| {
                let is = if is_ok(chain) { "whole".to_owned() } else { cell(chain, "why") };
                [cell(chain, "tenant"), cell(chain, "rows"), cell(chain, "hash"), is]
            });
            Table::new(["TENANT", "ROWS", "HASH", "CHAIN"]).print(rows.collect(), out)?;
        }
    }
    out.flush()?;
    if !is_ok(&checked) {
        let broken = checked.get("broken").unwrap_or(&Value::Null);
        let (why, id) = (cell(broken, "why"), cell(broken, "auditId"));
        bail!(
            "the audit log is not as it was written: {why} (tenant {}, {id})",
            cell(broken, "tenant")
        );
    }
    Ok(())
}

fn is_ok(checked: &Value) -> bool {
    checked.get("ok").and_then(Value::as_bool).unwrap_or(false)
}
