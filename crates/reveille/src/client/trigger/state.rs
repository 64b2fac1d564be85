//! `reveille trigger enable`, `disable`, `health-check`, `rollback` and `rollout`.

use std::io::Write;

use anyhow::bail;
use clap::Args;
use reveille_core::time::parse_period_ms;
use serde_json::{Map, Value, json};

use super::super::list::ShowArguments;
use super::super::table::print_fields;
use super::super::{Output, ServerArguments};
use super::change::patched;
use super::{Triggers, print_trigger};
use crate::failure::usage_error;

/// What `reveille trigger enable` takes.
#[derive(Debug, Args)]
pub(crate) struct Enable {
    /// Its id, as `reveille trigger list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// Enables it whatever its endpoint says
    #[arg(long, requires = "reason")]
    force: bool,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille trigger disable` takes.
#[derive(Debug, Args)]
pub(crate) struct Disable {
    /// Its id, as `reveille trigger list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille trigger rollback` takes.
#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// Its id, as `reveille trigger list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// The version to go back to, as `reveille trigger versions` shows it
    #[arg(long, value_name = "N")]
    to: u64,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille trigger rollout` takes.
#[derive(Debug, Args)]
pub(crate) struct Rollout {
    /// Its id, as `reveille trigger list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// The part of the documents that the latest version is for
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    percent: Option<u8>,
    /// The share of attempts that may fail, like 0.05
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    max_error_rate: Option<f64>,
    /// How long the slowest twentieth of the attempts may at least take
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    max_p95: Option<u64>,
    /// The time over which both are measured
    #[arg(long, value_name = "TIME", value_parser = parse_text_period)]
    window: Option<String>,
    /// Attempts in that time from which on they count
    #[arg(long, value_name = "COUNT")]
    min_samples: Option<u32>,
    /// No limits: it does not go back by itself
    #[arg(long, conflicts_with_all = ["max_error_rate", "max_p95", "window", "min_samples"])]
    no_slo: bool,
    /// Only if it has this version [default: the one that it has now]
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// Milliseconds.
fn parse_period(text: &str) -> Result<u64, String> {
    parse_period_ms(text).ok_or_else(|| "a time is written 500ms, 45s, 10m or 3d".to_owned())
}

fn parse_text_period(text: &str) -> Result<String, String> {
    parse_period(text).map(|_| text.to_owned())
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is a number from 0 to 1, like 0.05".to_owned())
}

pub(super) fn enable(arguments: Enable, out: &mut impl Write) -> anyhow::Result<()> {
    let Enable { id, force, reason, output, server } = arguments;
    let triggers = Triggers::new(server)?;
    let mut body = Map::new();
    if force {
        body.insert("force".to_owned(), true.into());
    }
    if let Some(reason) = reason {
        body.insert("reason".to_owned(), reason.into());
    }
    let enabled = enabled(&triggers, &id, body)?;
    print_trigger(&enabled, output, out)
}

/// Enables a trigger.
pub(super) fn enabled(
    triggers: &Triggers,
    id: &str,
    body: Map<String, Value>,
) -> anyhow::Result<Map<String, Value>> {
    triggers.object(id, triggers.post(id, "/enable", body))
}

pub(super) fn disable(arguments: Disable, out: &mut impl Write) -> anyhow::Result<()> {
    let Disable { id, reason, output, server } = arguments;
    let triggers = Triggers::new(server)?;
    let body = Map::from_iter([("reason".to_owned(), reason.into())]);
    let disabled = triggers.object(&id, triggers.post(&id, "/disable", body))?;
    print_trigger(&disabled, output, out)
}

pub(super) fn health_check(arguments: ShowArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let ShowArguments { id, output, server } = arguments;
    let triggers = Triggers::new(server)?;
    let found = triggers.object(&id, triggers.post(&id, "/health-check", Map::new()))?;
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(found.clone()))?,
        Output::Human => print_fields(&found, "ok", out)?,
    }
    out.flush()?;
    if found.get("ok").and_then(Value::as_bool) == Some(false) {
        bail!("the endpoint of trigger {id:?} does not accept a test");
    }
    Ok(())
}

pub(super) fn rollback(arguments: Rollback, out: &mut impl Write) -> anyhow::Result<()> {
    let Rollback { id, to, reason, output, server } = arguments;
    let triggers = Triggers::new(server)?;
    let body = [("version".to_owned(), to.into()), ("reason".to_owned(), reason.into())];
    let question = triggers.post(&id, "/rollback", Map::from_iter(body));
    let rolled_back = triggers.object(&id, question)?;
    print_trigger(&rolled_back, output, out)
}

pub(super) fn rollout(arguments: Rollout, out: &mut impl Write) -> anyhow::Result<()> {
    let patch = rollout_patch(&arguments);
    let Rollout { id, if_version, output, server, .. } = arguments;
    if patch.is_empty() {
        return Err(usage_error("nothing is to be changed; pass --percent, or a limit"));
    }
    let triggers = Triggers::new(server)?;
    let patch = Map::from_iter([("rollout".to_owned(), Value::Object(patch))]);
    let changed = patched(&triggers, &id, patch, if_version)?;
    print_trigger(&changed, output, out)
}

fn rollout_patch(arguments: &Rollout) -> Map<String, Value> {
    let Rollout { percent, max_error_rate, max_p95, window, min_samples, no_slo, .. } = arguments;
    let given = |fields: Vec<(&str, Option<Value>)>| -> Map<String, Value> {
        fields.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))).collect()
    };
    let slo = given(vec![
        ("maxErrorRate", max_error_rate.map(|it| json!(it))),
        ("maxP95LatencyMs", max_p95.map(|it| json!(it))),
        ("window", window.as_ref().map(|it| json!(it))),
        ("minSamples", min_samples.map(|it| json!(it))),
    ]);
    let slo =
        if *no_slo { Some(Value::Null) } else { (!slo.is_empty()).then_some(Value::Object(slo)) };
    given(vec![("percent", percent.map(|it| json!(it))), ("slo", slo)])
}
