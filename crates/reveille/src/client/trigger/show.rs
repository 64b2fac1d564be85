//! `reveille trigger list`, `show` and `versions`.

use std::io::Write;

use clap::Args;
use reveille_core::Millis;
use serde_json::{Map, Value, json};

use super::super::list::{ListArguments, ShowArguments, print_list};
use super::super::table::{ListPrinter, cell, moment_cell, print_fields};
use super::super::url::encode;
use super::super::{Output, ServerArguments, block_on, human};
use super::{TRIGGERS, Triggers, described};

const PAGE: usize = 200;

/// What `reveille trigger list` takes.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only those for this collection, as they name it
    #[arg(long, value_name = "GLOB")]
    collection: Option<String>,
    /// Only those in this state: disabled, enabled, dry_run or rolled_back
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    #[command(flatten)]
    list: ListArguments,
}

/// What `reveille trigger versions` takes.
#[derive(Debug, Args)]
pub(crate) struct Versions {
    /// Its id, as `reveille trigger list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// Shows this version instead
    #[arg(long, value_name = "N")]
    show: Option<u64>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

pub(super) fn list(arguments: List, out: &mut impl Write) -> anyhow::Result<()> {
    let List { collection, state, list: ListArguments { output, server } } = arguments;
    let named = server.tenant.clone();
    let triggers = Triggers::new(server)?;
    let mut target = format!("{TRIGGERS}?limit={PAGE}");
    let tenant = named.map(|it| it.to_string());
    for (name, value) in [("tenant", tenant), ("collection", collection), ("state", state)] {
        if let Some(value) = value {
            target.push_str(&format!("&{name}={}", encode(&value)));
        }
    }
    let head = ["ID", "TENANT", "STATE", "VERSION", "COLLECTION", "EVENTS", "URL"];
    let mut list = ListPrinter::new(output, head, row);
    block_on(print_list(&triggers.client, &target, "triggers", |_| true, &mut list, out))?;
    list.finish("there are no such triggers; `reveille trigger create` makes one", out)?;
    Ok(())
}

fn row(trigger: &Value, _: Millis) -> [String; 7] {
    let percent = trigger.get("rollout").and_then(|it| it.get("percent")?.as_u64());
    let state = match percent.filter(|percent| *percent < 100) {
        Some(percent) => format!("{} {percent}%", cell(trigger, "state")),
        None => cell(trigger, "state"),
    };
    [
        cell(trigger, "triggerId"),
        cell(trigger, "tenant"),
        state,
        cell(trigger, "version"),
        cell(trigger, "collection"),
        cell(trigger, "events"),
        cell(trigger, "url"),
    ]
}

/// The trigger, and behind it how it fares.
pub(super) fn show(arguments: ShowArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let ShowArguments { id, output, server } = arguments;
    let triggers = Triggers::new(server)?;
    let trigger = triggers.object(&id, triggers.get(&id, ""))?;
    let status = triggers.object(&id, triggers.get(&id, "/status"))?;
    match output {
        Output::Json => {
            let mut both = trigger;
            both.insert("status".to_owned(), Value::Object(status));
            writeln!(out, "{:#}", Value::Object(both))?;
        }
        Output::Human => {
            print_fields(&described(&trigger), "triggerId", out)?;
            let is_new = |name: &str| !trigger.contains_key(name);
            let mut rest: Map<String, Value> =
                status.into_iter().filter(|(name, _)| is_new(name)).collect();
            flatten_lag(&mut rest);
            writeln!(out)?;
            print_fields(&described(&rest), "health", out)?;
        }
    }
    Ok(())
}

/// How far it is behind, in words.
fn flatten_lag(status: &mut Map<String, Value>) {
    let lag = status.get("lag").cloned().unwrap_or_default();
    let number = |name: &str| lag.get(name).and_then(Value::as_u64);
    if let (Some(seq), Some(seconds)) = (number("seq"), number("seconds")) {
        let behind = human::period(seconds.saturating_mul(1_000));
        let text = format!("{seq} changes, {behind}");
        status.insert("lag".to_owned(), if seq == 0 { json!("none") } else { text.into() });
    }
}

pub(super) fn versions(arguments: Versions, out: &mut impl Write) -> anyhow::Result<()> {
    let Versions { id, show, output, server } = arguments;
    let triggers = Triggers::new(server)?;
    if let Some(version) = show {
        let shown = triggers.object(&id, triggers.get(&id, &format!("/versions/{version}")))?;
        match output {
            Output::Json => writeln!(out, "{:#}", Value::Object(shown))?,
            Output::Human => print_fields(&described(&shown), "version", out)?,
        }
        return Ok(());
    }
    // One that is not there is told by its name.
    triggers.object(&id, triggers.get(&id, ""))?;
    let target = triggers.target(&id, "/versions");
    let head = ["VERSION", "MADE", "IS", "LABEL", "COLLECTION", "URL"];
    let mut list = ListPrinter::new(output, head, version_row);
    block_on(print_list(&triggers.client, &target, "versions", |_| true, &mut list, out))?;
    list.finish("there are no versions", out)?;
    Ok(())
}

fn version_row(version: &Value, now: Millis) -> [String; 6] {
    let is = |name: &str| version.get(name).and_then(Value::as_bool) == Some(true);
    let is = [("isCurrent", "current"), ("isStable", "stable")]
        .map(|(name, word)| is(name).then_some(word));
    [
        cell(version, "version"),
        moment_cell(version, "at", now),
        is.into_iter().flatten().collect::<Vec<_>>().join(","),
        cell(version, "label"),
        cell(version, "collection"),
        cell(version, "url"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_for_how_many_documents_a_version_is() {
        let mut trigger = json!({
            "triggerId": "t", "tenant": "acme", "state": "enabled", "version": 4,
            "collection": "orders", "events": ["create", "update"], "url": "https://a/",
            "rollout": { "percent": 10 },
        });
        let cells = row(&trigger, Millis(0));
        assert_eq!(
            cells,
            ["t", "acme", "enabled 10%", "4", "orders", "create,update", "https://a/"]
        );
        trigger["rollout"]["percent"] = 100.into();
        assert_eq!(row(&trigger, Millis(0))[2], "enabled");
    }

    #[test]
    fn lag_is_told_in_words() {
        let told = |lag: Value| {
            let mut status = Map::from_iter([("lag".to_owned(), lag)]);
            flatten_lag(&mut status);
            status.remove("lag").unwrap()
        };
        assert_eq!(told(json!({ "seq": 7, "seconds": 90 })), "7 changes, 1m");
        assert_eq!(told(json!({ "seq": 0, "seconds": 0 })), "none");
        assert_eq!(told(json!("new")), "new");
    }
}
