//! `reveille trigger test`, `dry-run` and `backtest`: what would be sent.

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;

use anyhow::bail;
use clap::{ArgGroup, Args};
use http::Method;
use reveille_core::Millis;
use reveille_core::time::parse_period_ms;
use serde_json::{Map, Value, json};

use super::super::table::{Table, cell, print_fields};
use super::super::{ApiRequest, Output, ServerArguments, block_on};
use super::draft::DraftFile;
use super::{Question, Triggers, query, take_id};
use crate::clock;
use crate::failure::usage_error;

/// Changes that are shown of a long time.
const SAMPLES_MAX: usize = 20;

/// What `reveille trigger test` takes.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").args(["path", "event", "seq"]).required(true))]
pub(crate) struct Test {
    /// Its id, as `reveille trigger list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// The document whose change it is, like orders/o1
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// The change, as JSON
    #[arg(long, value_name = "JSON", value_parser = parse_object)]
    event: Option<Value>,
    /// The change of this number, as `seq` in payloads and samples names it
    #[arg(long, value_name = "SEQ")]
    seq: Option<u64>,
    /// A draft to try instead, YAML or JSON; `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Makes the call, marked as a test
    #[arg(long)]
    send: bool,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille trigger dry-run` takes.
#[derive(Debug, Args)]
pub(crate) struct DryRun {
    /// Its id, as `reveille trigger list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// Begins a dry run
    #[arg(long, conflicts_with_all = ["stop", "from", "to"])]
    start: bool,
    /// Ends the dry run of a draft
    #[arg(long, conflicts_with_all = ["from", "to"])]
    stop: bool,
    /// A draft that is to run beside the version in force, YAML or JSON; `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE", requires = "start")]
    file: Option<PathBuf>,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT", requires = "start")]
    reason: Option<String>,
    /// Only what was counted at this time or later
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only what was counted before this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille trigger backtest` takes.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("begin").args(["since", "from"]).required(true))]
pub(crate) struct Backtest {
    /// Its id [default: that of the file]
    #[arg(value_name = "ID", required_unless_present = "file")]
    id: Option<String>,
    /// A draft, YAML or JSON; `-` for standard input [default: the version in force]
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// From so long ago until now
    #[arg(long, value_name = "TIME", value_parser = parse_period, conflicts_with = "to")]
    since: Option<u64>,
    /// From this time on
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Until before this time [default: now]
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

fn parse_object(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if value.is_object() { Ok(value) } else { Err("a change is a JSON object".to_owned()) }
}

/// Milliseconds.
fn parse_period(text: &str) -> Result<u64, String> {
    parse_period_ms(text).ok_or_else(|| "a time is written 500ms, 45s, 10m or 3d".to_owned())
}

/// Fields that are there, by their names.
fn present<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))).collect()
}

pub(super) fn test(arguments: Test, out: &mut impl Write) -> anyhow::Result<()> {
    let Test { id, path, event, seq, file, send, output, server } = arguments;
    let definition = draft(file.as_ref(), &id)?;
    let triggers = Triggers::new(server)?;
    let body = present([
        ("path", path.map(Value::from)),
        ("event", event),
        ("seq", seq.map(Value::from)),
        ("definition", definition),
        ("send", Some(send.into())),
    ]);
    let found = triggers.object(&id, triggers.post(&id, "/test", body))?;
    let fields = Value::Object(found.clone());
    match output {
        Output::Json => writeln!(out, "{fields:#}")?,
        Output::Human => {
            let mut plain = found;
            let request = plain.remove("request").unwrap_or_default();
            print_fields(&plain, "matched", out)?;
            print_request(&request, out)?;
        }
    }
    out.flush()?;
    if send && fields.get("ok").and_then(Value::as_bool) != Some(true) {
        match fields.get("status").and_then(Value::as_u64) {
            Some(status) => bail!("the endpoint answered {status}"),
            None => bail!("the endpoint did not answer: {}", cell(&fields, "error")),
        }
    }
    Ok(())
}

/// A request as it stands on the wire, but for its line ends.
fn print_request(request: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    if !request.is_object() {
        return Ok(());
    }
    writeln!(out, "\nPOST {}", cell(request, "url"))?;
    for (name, value) in request.get("headers").and_then(Value::as_object).into_iter().flatten() {
        writeln!(out, "{name}: {}", value.as_str().unwrap_or_default())?;
    }
    match request.get("body") {
        Some(Value::String(body)) => writeln!(out, "\n{body}")?,
        Some(body) => writeln!(out, "\n{body:#}")?,
        None => {}
    }
    Ok(())
}

/// The fields of a draft of this trigger.
fn draft(file: Option<&PathBuf>, id: &str) -> anyhow::Result<Option<Value>> {
    let Some(path) = file else { return Ok(None) };
    let mut fields = DraftFile::read(path)?.into_one()?;
    take_id(&mut fields, id)?;
    Ok(Some(Value::Object(fields)))
}

pub(super) fn dry_run(arguments: DryRun, out: &mut impl Write) -> anyhow::Result<()> {
    let DryRun { id, start, stop, file, reason, from, to, output, server } = arguments;
    let triggers = Triggers::new(server)?;
    if start {
        let definition = draft(file.as_ref(), &id)?;
        let has_draft = definition.is_some();
        let body = present([("definition", definition), ("reason", reason.map(Value::from))]);
        let begun = triggers.object(&id, triggers.post(&id, "/dry-run", body))?;
        match output {
            Output::Json => writeln!(out, "{:#}", Value::Object(begun))?,
            Output::Human if has_draft => {
                writeln!(out, "the draft of {id} counts, and the version in force goes on")?;
            }
            Output::Human => writeln!(out, "trigger {id} counts, and sends nothing")?,
        }
        return Ok(());
    }
    if stop {
        let question = Question {
            method: Method::DELETE,
            target: triggers.target(&id, "/dry-run"),
            body: None,
            version: None,
        };
        let answer = triggers.ask(question)?;
        if !answer.status.is_success() {
            bail!(triggers.refusal(&id, &answer));
        }
        writeln!(out, "the dry run of {id} has ended")?;
        return Ok(());
    }
    let rest = format!("/dry-run{}", query([("from", from), ("to", to)]));
    let report = triggers.object(&id, triggers.get(&id, &rest))?;
    print_report(&report, output, out)
}

pub(super) fn backtest(arguments: Backtest, out: &mut impl Write) -> anyhow::Result<()> {
    let Backtest { id, file, since, from, to, output, server } = arguments;
    let fields = file.as_ref().map(|path| DraftFile::read(path)?.into_one()).transpose()?;
    let named = fields.as_ref().and_then(|fields| fields.get("triggerId")?.as_str());
    let Some(id) = id.or_else(|| named.map(str::to_owned)) else {
        return Err(usage_error("the file has no `triggerId`; name the trigger before it"));
    };
    let definition = fields.map(|mut fields| take_id(&mut fields, &id).map(|()| fields));
    let definition = definition.transpose()?.map(Value::Object);
    let now = clock::now();
    let from = from.or_else(|| Some(Millis(now.0.saturating_sub(since?)).to_rfc3339()));
    let to = to.unwrap_or_else(|| now.to_rfc3339());
    let triggers = Triggers::new(server)?;
    let body = present([
        ("from", from.map(Value::from)),
        ("to", Some(to.into())),
        ("definition", definition),
    ]);
    let report = triggers.backtest(&id, body)?;
    print_report(&report, output, out)
}

impl Triggers {
    /// Goes through all changes of a time, in as many steps as the server takes for it.
    fn backtest(&self, id: &str, body: Map<String, Value>) -> anyhow::Result<Map<String, Value>> {
        let (mut whole, mut after) = (Map::new(), None);
        loop {
            let mut body = body.clone();
            body.extend(after.map(|after: u64| ("after".to_owned(), after.into())));
            let mut request = ApiRequest::new(Method::POST, self.target(id, "/backtest"));
            request.body = Value::Object(body).to_string().into();
            // Nothing is changed by it, so it may be asked again.
            let answer = block_on(async { Ok(self.client.send(&request).await?) })?;
            if !answer.status.is_success() {
                return Err(self.refusal(id, &answer));
            }
            let mut part = super::super::parse_object(&answer, "changes")?;
            let next = part.remove("nextAfter").and_then(|it| it.as_u64());
            add(&mut whole, part);
            if next.is_none() || next == after {
                rates(&mut whole);
                return Ok(whole);
            }
            after = next;
            if io::stderr().is_terminal() {
                eprint!("\r{} changes", cell(&Value::Object(whole.clone()), "changes"));
            }
        }
    }
}

/// Adds what one step has counted to what those before it have.
fn add(whole: &mut Map<String, Value>, part: Map<String, Value>) {
    for (name, value) in part {
        match (whole.get_mut(&name), value) {
            (Some(Value::Object(sum)), Value::Object(part)) => add(sum, part),
            (Some(Value::Array(all)), Value::Array(some)) => {
                let room = SAMPLES_MAX.saturating_sub(all.len());
                all.extend(some.into_iter().take(room));
            }
            (Some(sum), value) if name != "version" && sum.is_u64() && value.is_u64() => {
                let (sum_of, more) = (sum.as_u64().unwrap_or(0), value.as_u64().unwrap_or(0));
                *sum = sum_of.saturating_add(more).into();
            }
            (Some(known), Value::Null) if !known.is_null() => {}
            (_, value) => {
                whole.insert(name, value);
            }
        }
    }
}

/// Shares of what was counted in all steps.
fn rates(fields: &mut Map<String, Value>) {
    let number = |name: &str| fields.get(name).and_then(Value::as_f64);
    let rate = number("matched").zip(number("evaluated")).filter(|(_, whole)| *whole > 0.0);
    if fields.contains_key("hitRate") {
        fields.insert("hitRate".to_owned(), json!(rate.map(|(part, whole)| part / whole)));
    }
    if let Some(Value::Object(live)) = fields.get_mut("live") {
        rates(live);
    }
}

/// How much matched, beside the version in force, and some of it.
fn print_report(
    report: &Map<String, Value>,
    output: Output,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    if output == Output::Json {
        writeln!(out, "{:#}", Value::Object(report.clone()))?;
        return Ok(());
    }
    let mut plain = report.clone();
    let samples = plain.remove("samples");
    for name in ["baseline", "live", "difference"] {
        if let Some(Value::Object(fields)) = plain.remove(name) {
            let fields = fields.into_iter().filter(|(_, value)| !value.is_array());
            plain.extend(fields.map(|(field, value)| (format!("{name}.{field}"), value)));
        }
    }
    for rate in plain.iter_mut().filter(|(name, _)| name.ends_with("itRate")).map(|(_, it)| it) {
        if let Some(share) = rate.as_f64() {
            *rate = json!(format!("{:.2} %", share * 100.0));
        }
    }
    print_fields(&plain, "evaluated", out)?;
    let samples = samples.as_ref().and_then(Value::as_array).cloned().unwrap_or_default();
    if !samples.is_empty() {
        writeln!(out)?;
        let place = |it: &Value| ["seq", "at", "event", "path"].map(|name| cell(it, name));
        let is_compared = samples.iter().any(|it| it.get("live").is_some_and(Value::is_boolean));
        if is_compared {
            let rows = samples.iter().map(|it| {
                let [seq, at, event, path] = place(it);
                [seq, at, event, path, cell(it, "matched"), cell(it, "live")]
            });
            let head = ["SEQ", "AT", "EVENT", "PATH", "DRAFT", "LIVE"];
            Table::new(head).print(rows.collect(), out)?;
        } else {
            let rows = samples.iter().map(place).collect();
            Table::new(["SEQ", "AT", "EVENT", "PATH"]).print(rows, out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_steps_have_counted_is_one_report() {
        let step = |matched: u64, error: Value| {
            let part = json!({
                "changes": 10, "evaluated": 4, "matched": matched, "hitRate": 0.0, "evalErrors": 0,
                "lastError": error, "samples": vec![json!({ "seq": matched }); 15],
                "live": { "version": 3, "evaluated": 4, "matched": 1, "hitRate": 0.25 },
                "difference": { "onlyDraft": 1, "onlyLive": 0 },
            });
            part.as_object().unwrap().clone()
        };
        let mut whole = Map::new();
        for part in [step(1, json!("no key")), step(3, Value::Null)] {
            add(&mut whole, part);
        }
        rates(&mut whole);
        assert_eq!(whole.remove("samples").unwrap().as_array().unwrap().len(), SAMPLES_MAX);
        let expected = json!({
            "changes": 20, "evaluated": 8, "matched": 4, "hitRate": 0.5, "evalErrors": 0,
            "lastError": "no key",
            "live": { "version": 3, "evaluated": 8, "matched": 2, "hitRate": 0.25 },
            "difference": { "onlyDraft": 2, "onlyLive": 0 },
        });
        assert_eq!(Value::Object(whole), expected);
    }

    #[test]
    fn rol_1_a_report_shows_rates_beside_the_version_in_force() {
        let report = json!({
            "evaluated": 4, "matched": 1, "hitRate": 0.25, "evalErrors": 0,
            "samples": [{ "seq": 9, "at": "2026-01-01T00:00:00.000Z", "event": "update", "path": "orders/o1" }],
            "baseline": { "version": 3, "evaluated": 4, "matched": 2, "hitRate": 0.5 },
        });
        let mut out = Vec::new();
        print_report(report.as_object().unwrap(), Output::Human, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("evaluated "), "{text}");
        for part in ["hitRate             25.00 %", "baseline.hitRate    50.00 %", "orders/o1"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
