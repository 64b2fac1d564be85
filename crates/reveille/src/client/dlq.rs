//! `reveille dlq`: dead letters, found, looked at, replayed and discarded.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::Millis;
use serde_json::{Map, Value, json};

use super::list::{ListArguments, ShowArguments, print_list};
use super::table::{ListPrinter, cell, moment_cell, print_fields};
use super::url::{encode, encode_segment};
use super::{ApiRequest, ApiResponse, Client, Output, ServerArguments, human, parse_object};
use crate::clock;
use crate::failure::usage_error;

const DLQ: &str = "/admin/v1/dlq";
const PAGE: usize = 1_000;
/// Between two looks at a replay.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What `reveille dlq` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// Lists dead letters, newest first
    #[command(after_help = "\
Example:
  reveille dlq list
  reveille dlq list --trigger order-paid
  reveille dlq list --hook 01KA9VGW3J8Y0D1T5S6R7Q8P9N --from 2026-01-31T12:00:00Z --output json")]
    List(List),
    /// Shows a dead letter with its last error and what was to be delivered
    #[command(after_help = "\
Example:
  reveille dlq show 01KA9VGW3J8Y0D1T5S6R7Q8P9N")]
    Show(ShowArguments),
    /// Has dead letters delivered again: shows first how many and how much, and asks
    #[command(after_help = "\
What is replayed is what was shown: if the dead letters have changed in between, nothing is done.
On a terminal it asks before it begins; elsewhere it takes --yes. The reason is kept in the audit
log.

Example:
  reveille dlq replay --hook 01KA9VGW3J8Y0D1T5S6R7Q8P9N --reason 'the worker is mended' --wait
  reveille dlq replay --trigger order-paid --reason 'the shop is open again' --original-version
  reveille dlq replay --dead-reason EXHAUSTED --reason 'the network is back' --yes
  reveille dlq replay --dry-run")]
    Replay(Replay),
    /// Sets dead letters aside for good: one at once, several after it has shown how many, and asked
    #[command(after_help = "\
What is discarded is what was shown: if the dead letters have changed in between, nothing is done.
On a terminal it asks before it begins; elsewhere it takes --yes. The reason is kept in the audit
log.

Example:
  reveille dlq discard 01KA9VGW3J8Y0D1T5S6R7Q8P9N --reason 'a test order'
  reveille dlq discard --trigger order-paid --dead-reason LOOP_GUARD --reason 'they went in circles'")]
    Discard(Discard),
}

/// Which dead letters are meant.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Only those of this hook
    #[arg(long, value_name = "ID")]
    hook: Option<String>,
    /// Only those of this trigger
    #[arg(long, value_name = "ID", conflicts_with = "hook")]
    trigger: Option<String>,
    /// Only those that died for this reason, such as EXHAUSTED or FATAL_STATUS
    #[arg(long, value_name = "REASON")]
    dead_reason: Option<String>,
    /// Only those that died at this time or later
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Only those that died before this time
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

impl Selection {
    /// By the names that the server has for them.
    fn filters(self, dead_reason: &'static str) -> [(&'static str, Option<String>); 5] {
        [
            ("hook", self.hook),
            ("triggerId", self.trigger),
            (dead_reason, self.dead_reason),
            ("from", self.from),
            ("to", self.to),
        ]
    }

    fn is_everything(&self) -> bool {
        let Selection { hook, trigger, dead_reason, from, to } = self;
        [hook, trigger, dead_reason, from, to].into_iter().all(Option::is_none)
    }
}

/// What `reveille dlq list` takes.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    selection: Selection,
    /// Only those in this state: dead, replayed or discarded
    #[arg(long, value_name = "STATE", default_value = "dead")]
    state: String,
    #[command(flatten)]
    list: ListArguments,
}

/// What `reveille dlq replay` takes.
#[derive(Debug, Args)]
pub(crate) struct Replay {
    #[command(flatten)]
    task: Task,
    /// Delivers them by the version of their hook that they had, where former versions are kept, and
    /// not by the hook as it is now
    #[arg(long)]
    original_version: bool,
}

/// What `reveille dlq discard` takes.
#[derive(Debug, Args)]
pub(crate) struct Discard {
    #[command(flatten)]
    task: Task,
}

/// Something that is done with many dead letters.
#[derive(Debug, Args)]
struct Task {
    /// Only these (repeatable)
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,
    /// Only shows how many and how much
    #[arg(long)]
    dry_run: bool,
    /// Does not ask
    #[arg(long)]
    yes: bool,
    /// Waits until it is done, and fails if any has died again
    #[arg(long)]
    wait: bool,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// How the server calls what is done, and how we do.
struct Action {
    route: &'static str,
    id: &'static str,
    question: &'static str,
    /// Where it is looked at, and what is counted of it.
    status: &'static str,
    parts: &'static [&'static str],
}

const REPLAY: Action = Action {
    route: "/admin/v1/dlq/replay",
    id: "replayId",
    question: "have them delivered again?",
    status: "/admin/v1/dlq/replays",
    parts: &["pending", "succeeded", "failed"],
};

const DISCARD: Action = Action {
    route: "/admin/v1/dlq/discard",
    id: "discardId",
    question: "discard them?",
    status: "/admin/v1/dlq/discards",
    parts: &["pending", "discarded"],
};

pub(crate) fn run(command: DlqCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        DlqCommand::List(arguments) => list(arguments, &mut out),
        DlqCommand::Show(arguments) => show(arguments, &mut out),
        DlqCommand::Replay(Replay { task, original_version }) => {
            let more = original_version.then_some(("useOriginalVersion", true.into()));
            super::block_on(carry_out(&REPLAY, task, more, &mut out))
        }
        DlqCommand::Discard(Discard { task }) => super::block_on(discard(task, &mut out)),
    }?;
    out.flush()?;
    Ok(())
}

fn list(arguments: List, out: &mut impl Write) -> anyhow::Result<()> {
    let List { selection, state, list } = arguments;
    let ListArguments { output, server } = list;
    let client = Client::new(server)?;
    let mut target = format!("{DLQ}?limit={PAGE}&state={}", encode(&state));
    for (name, value) in selection.filters("reason") {
        if let Some(value) = value {
            target.push_str(&format!("&{name}={}", encode(&value)));
        }
    }
    let head = ["ID", "FOR", "REASON", "STATE", "ATTEMPTS", "DIED", "LAST ERROR"];
    let mut list = ListPrinter::new(output, head, row);
    super::block_on(print_list(&client, &target, "deadLetters", |_| true, &mut list, out))?;
    list.finish("there are no such dead letters", out)?;
    Ok(())
}

fn row(letter: &Value, now: Millis) -> [String; 7] {
    [
        cell(letter, "dlqId"),
        cell(letter, "hookId"),
        cell(letter, "reason"),
        cell(letter, "state"),
        cell(letter, "attempts"),
        moment_cell(letter, "deadAt", now),
        human::shorten(&cell(letter.get("lastError").unwrap_or(&Value::Null), "message")),
    ]
}

fn show(arguments: ShowArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let target = format!("{DLQ}/{}", encode_segment(&arguments.id));
    let request = ApiRequest::new(Method::GET, target);
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    let letter = read(&client, &answer, StatusCode::OK, &arguments.id)?;
    match arguments.output {
        Output::Json => writeln!(out, "{:#}", Value::Object(letter))?,
        Output::Human => print_fields(&letter, "dlqId", out)?,
    }
    Ok(())
}

/// What the server answers, or why there is no such dead letter.
fn read(
    client: &Client,
    answer: &ApiResponse,
    expected: StatusCode,
    id: &str,
) -> anyhow::Result<Map<String, Value>> {
    match answer.status {
        status if status == expected => parse_object(answer, "dead letters"),
        StatusCode::NOT_FOUND => Err(anyhow!(
            "there is no dead letter {id:?}; `reveille dlq list` shows those that there are"
        )),
        _ => Err(client.refusal(answer)),
    }
}

async fn post(client: &Client, target: &str, body: &Value) -> anyhow::Result<ApiResponse> {
    let mut request = ApiRequest::new(Method::POST, target);
    request.body = body.to_string().into();
    Ok(client.send(&request).await?)
}

/// Shows what is meant, asks, and has it done.
async fn carry_out(
    action: &Action,
    task: Task,
    more: Option<(&str, Value)>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let Task { ids, selection, reason, dry_run, yes, wait, output, server } = task;
    let client = Client::new(server)?;
    let mut body = Map::from_iter([("dryRun".to_owned(), true.into()), ("ids".into(), ids.into())]);
    let filters = selection.filters("deadReason").into_iter();
    let filters = filters.filter_map(|(name, value)| Some((name, value?.into())));
    body.extend(filters.chain(more).map(|(name, value)| (name.to_owned(), value)));
    let answer = post(&client, action.route, &Value::Object(body)).await?;
    if answer.status != StatusCode::OK {
        return Err(client.refusal(&answer));
    }
    let preview = parse_object(&answer, "a preview")?;
    let number = |name: &str| preview.get(name).and_then(Value::as_u64).unwrap_or(0);
    let (count, size) = (number("count"), human::size(number("bytes")));
    note_paused(action, &preview);
    if dry_run {
        match output {
            Output::Json => writeln!(out, "{:#}", Value::Object(preview))?,
            Output::Human => writeln!(out, "{count} dead letters, {size}")?,
        }
        return Ok(());
    }
    if count == 0 {
        bail!("there are no such dead letters; `reveille dlq list` shows those that there are");
    }
    if !yes {
        confirm(&format!("{count} dead letters, {size}: {}", action.question))?;
    }
    let body = json!({ "previewId": preview.get("previewId"), "reason": reason });
    // Asked once: what was begun is not begun again.
    let mut request = ApiRequest::new(Method::POST, action.route);
    request.body = body.to_string().into();
    let answer = client.read_response(client.send_once(&request).await?).await?;
    if answer.status != StatusCode::ACCEPTED {
        return Err(client.refusal(&answer));
    }
    let mut begun = parse_object(&answer, "what was begun")?;
    if wait {
        begun = until_ended(action, &client, begun).await?;
    }
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(begun.clone()))?,
        Output::Human => print_fields(&begun, action.id, out)?,
    }
    out.flush()?;
    match begun.get("failed").and_then(Value::as_u64).unwrap_or(0) {
        failed if wait && failed > 0 => {
            bail!("{failed} have died again; `reveille dlq list` shows why")
        }
        _ => Ok(()),
    }
}

/// Whoever waits for a replay must know what it waits for.
fn note_paused(action: &Action, preview: &Map<String, Value>) {
    if action.id != REPLAY.id {
        return;
    }
    let paused = preview.get("paused").and_then(Value::as_array).into_iter().flatten();
    for hook in paused.filter_map(Value::as_str) {
        eprintln!(
            "note: {hook} is paused; its part is sent after `reveille hooks resume {hook}`, of a \
             trigger after `reveille trigger enable {hook}`"
        );
    }
}

/// Asks somebody at a terminal.
fn confirm(question: &str) -> anyhow::Result<()> {
    if !io::stdin().is_terminal() {
        return Err(usage_error(format!("{question} nobody can be asked here; pass --yes")));
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    bail!("nothing was done")
}

/// Looks until all have come to an end.
async fn until_ended(
    action: &Action,
    client: &Client,
    begun: Map<String, Value>,
) -> anyhow::Result<Map<String, Value>> {
    let id = begun.get(action.id).and_then(Value::as_str).unwrap_or_default();
    let target = format!("{}/{}", action.status, encode_segment(id));
    let request = ApiRequest::new(Method::GET, target);
    let mut shown = String::new();
    loop {
        let answer = client.send(&request).await?;
        if answer.status != StatusCode::OK {
            return Err(client.refusal(&answer));
        }
        let now = parse_object(&answer, "what was begun")?;
        let fields = Value::Object(now.clone());
        let part = |name: &str| format!("{} {name}", cell(&fields, name));
        let line = action.parts.iter().map(|name| part(name)).collect::<Vec<_>>().join(", ");
        if line != shown && io::stderr().is_terminal() {
            eprintln!("{line}");
            shown = line;
        }
        if cell(&fields, "state") == "done" {
            return Ok(now);
        }
        clock::sleep(LOOK_EVERY).await;
    }
}

/// One that is named is discarded at once; whoever means several sees first how many there are.
async fn discard(task: Task, out: &mut impl Write) -> anyhow::Result<()> {
    let [id] = &task.ids[..] else { return carry_out(&DISCARD, task, None, out).await };
    if task.dry_run || !task.selection.is_everything() {
        return carry_out(&DISCARD, task, None, out).await;
    }
    let client = Client::new(task.server)?;
    let target = format!("{DLQ}/{}/discard", encode_segment(id));
    let answer = post(&client, &target, &json!({ "reason": task.reason })).await?;
    let discarded = read(&client, &answer, StatusCode::OK, id)?;
    match task.output {
        Output::Json => writeln!(out, "{:#}", Value::Object(discarded))?,
        Output::Human => writeln!(out, "discarded {id}")?,
    }
    Ok(())
}
