//! `reveille trigger`: webhooks for changes of documents, written down, tried out and governed.

mod change;
mod draft;
mod show;
mod state;
mod trial;

use std::io::{self, BufWriter, Write};

use anyhow::{anyhow, bail};
use clap::Subcommand;
use http::header::{HeaderName, HeaderValue, IF_MATCH};
use http::{Method, StatusCode};
use serde_json::{Map, Value};

use super::list::ShowArguments;
use super::table::{cell_text, print_fields};
use super::url::{encode, encode_segment};
use super::{
    ApiRequest, ApiResponse, Client, Output, ServerArguments, block_on, message, parse_object,
};

const TRIGGERS: &str = "/admin/v1/triggers";
/// In the place of a tenant's name: that of the key, which need not be known.
pub(super) const OWN_TENANT: &str = "~";

/// What `reveille trigger` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum TriggerCommand {
    /// Makes a trigger, disabled until it is enabled
    #[command(after_help = "\
Its fields come from a file, as YAML or JSON, from the command line, or from both: what stands on the
command line counts. A trigger that has no id in the file and none on the command line gets one.

It calls nobody before `reveille trigger enable`, or --enable here, which has it called once as a
test first. Calls are signed with the secret of that name; see `reveille secret`.

Example:
  reveille trigger create order-paid --collection orders --event update \\
    --when \"event.document.state == 'paid' && event.before.state != 'paid'\" \\
    --webhook https://example.com/ship --enable
  reveille trigger create -f order-paid.yaml")]
    Create(change::Create),
    /// Makes what a file says so: triggers that are not there are made, others changed
    #[command(after_help = "\
A file is YAML, or JSON, and has one trigger with its `triggerId`, or several of one tenant by their
ids:

  tenant: acme                # that of the key, if it is left out
  retryPolicy: {maxAttempts: 5}    # of those that have none
  triggers:
    order-paid:
      collection: orders
      events: [update]
      condition: event.document.state == 'paid'
      url: https://example.com/ship

All of a file is done for a tenant, or nothing of it. With --tenant it is done for each of these, one
after another. What would be done is asked of all of them first: where one of them refuses that,
nothing is done. A trigger that somebody else changes before it is done stays as it is, with all of
its file, and those that were done before are said. A trigger that is applied has what the file says
and nothing else. One that is not in the file stays as it is.

Example:
  reveille trigger apply -f triggers.yaml --reason 'release 42'
  reveille trigger apply -f order-paid.yaml --tenant acme,globex
  reveille trigger apply -f triggers.yaml --dry-run")]
    Apply(change::Apply),
    /// Lists triggers
    #[command(after_help = "\
Example:
  reveille trigger list
  reveille trigger list --state enabled --collection orders --output json")]
    List(show::List),
    /// Shows a trigger, how its deliveries fare and how far it is behind
    #[command(after_help = "\
Values of headers are not shown: they may be credentials.

Example:
  reveille trigger show order-paid")]
    Show(ShowArguments),
    /// Changes fields of a trigger, and makes its next version
    #[command(after_help = "\
What is not named stays as it is; a field of the file that is null goes back to what it is by
default. What was matched before is delivered by the version that matched it.

The change is for the trigger as it was when this command looked at it, or with --if-version as it
was then: if somebody else has changed it meanwhile, nothing is done.

Example:
  reveille trigger update order-paid --webhook https://example.com/ship-v2
  reveille trigger update order-paid -f patch.yaml --if-version 3")]
    Update(change::Update),
    /// Has a trigger call its webhook, for changes from now on
    #[command(after_help = "\
The endpoint is called once before, with a signed test: one that does not answer with 2xx leaves the
trigger as it is. What waited while it was disabled is delivered.

Example:
  reveille trigger enable order-paid
  reveille trigger enable order-paid --force --reason 'the endpoint comes up later'")]
    Enable(state::Enable),
    /// Has a trigger match nothing more; what it has matched waits
    #[command(after_help = "\
Example:
  reveille trigger disable order-paid --reason 'the warehouse is closed'")]
    Disable(state::Disable),
    /// Calls the endpoint of a trigger once, with a signed test
    #[command(after_help = "\
Example:
  reveille trigger health-check order-paid")]
    HealthCheck(ShowArguments),
    /// Lists the versions of a trigger, or shows one
    #[command(after_help = "\
Example:
  reveille trigger versions order-paid
  reveille trigger versions order-paid --show 3")]
    Versions(show::Versions),
    /// Goes back to an earlier version of a trigger, which becomes its next one
    #[command(after_help = "\
Example:
  reveille trigger rollback order-paid --to 3 --reason 'v4 sends too much'")]
    Rollback(state::Rollback),
    /// Says whether a change would match, and what would be sent
    #[command(after_help = "\
The change is the document at a path as it is now, one that the server keeps, by its seq, or one that
is written out: {\"path\": \"orders/o1\", \"before\": {…}, \"document\": {…}}, without `before` for one that
is made and without `document` for one that is deleted. With a file the trigger is tried as it would
be with the fields in it.

Nothing is sent without --send, which makes one call that is marked as a test, and fails if that is
not accepted.

Example:
  reveille trigger test order-paid --path orders/o1
  reveille trigger test order-paid --event '{\"path\":\"orders/o1\",\"document\":{\"state\":\"paid\"}}'
  reveille trigger test order-paid --path orders/o1 --send")]
    Test(trial::Test),
    /// Counts what a trigger, or a draft of it, would send, and sends nothing
    #[command(after_help = "\
With --start the trigger only counts from then on. With a file, the trigger with the fields in it
counts beside the version in force, which goes on sending. Without --start and --stop what was counted is shown.

Example:
  reveille trigger dry-run order-paid --start -f draft.yaml
  reveille trigger dry-run order-paid
  reveille trigger dry-run order-paid --stop")]
    DryRun(trial::DryRun),
    /// Has the latest version of a trigger be for a part of the documents
    #[command(after_help = "\
A document is always on the same side, so its order is kept. The others go on with the version before.
With a limit on errors or on slowness the trigger goes back by itself where the endpoint exceeds it
over the window. Tenants are rolled out to one by one: `reveille trigger apply -f FILE --tenant a,b`.

Example:
  reveille trigger rollout order-paid --percent 10 --max-error-rate 0.05 --max-p95 2s --window 5m
  reveille trigger rollout order-paid --percent 100")]
    Rollout(state::Rollout),
    /// Runs a trigger, or a draft, over changes of the past, and sends nothing
    #[command(after_help = "\
Says how many of the changes would have matched, shows some of them, and says how the draft, which is
the trigger with the fields of a file, differs from the version in force. Changes are there for as long as the server keeps them (--retain-events).

Example:
  reveille trigger backtest order-paid --since 7d
  reveille trigger backtest -f draft.yaml --since 7d
  reveille trigger backtest order-paid --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z")]
    Backtest(trial::Backtest),
    /// Ends a trigger
    #[command(after_help = "\
What it has matched and not delivered becomes dead letters, which can be looked at, or is forgotten
with --pending drop. To have it wait instead, disable the trigger.

Example:
  reveille trigger delete order-paid
  reveille trigger delete order-paid --pending drop")]
    Delete(change::Delete),
}

pub(crate) fn run(command: TriggerCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        TriggerCommand::Create(arguments) => change::create(arguments, &mut out),
        TriggerCommand::Apply(arguments) => change::apply(arguments, &mut out),
        TriggerCommand::List(arguments) => show::list(arguments, &mut out),
        TriggerCommand::Show(arguments) => show::show(arguments, &mut out),
        TriggerCommand::Update(arguments) => change::update(arguments, &mut out),
        TriggerCommand::Enable(arguments) => state::enable(arguments, &mut out),
        TriggerCommand::Disable(arguments) => state::disable(arguments, &mut out),
        TriggerCommand::HealthCheck(arguments) => state::health_check(arguments, &mut out),
        TriggerCommand::Versions(arguments) => show::versions(arguments, &mut out),
        TriggerCommand::Rollback(arguments) => state::rollback(arguments, &mut out),
        TriggerCommand::Test(arguments) => trial::test(arguments, &mut out),
        TriggerCommand::DryRun(arguments) => trial::dry_run(arguments, &mut out),
        TriggerCommand::Rollout(arguments) => state::rollout(arguments, &mut out),
        TriggerCommand::Backtest(arguments) => trial::backtest(arguments, &mut out),
        TriggerCommand::Delete(arguments) => change::delete(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

/// A server with triggers, and whose of them are meant.
struct Triggers {
    client: Client,
    tenant: String,
}

/// What is asked about a trigger.
struct Question {
    method: Method,
    target: String,
    body: Option<Value>,
    /// The version that the trigger has, for whom this was thought out.
    version: Option<u64>,
}

impl Triggers {
    fn new(server: ServerArguments) -> anyhow::Result<Triggers> {
        let tenant = server.tenant.as_ref().map_or(OWN_TENANT, |it| it.as_str()).to_owned();
        Ok(Triggers { client: Client::new(server)?, tenant })
    }

    /// What belongs to a trigger.
    fn target(&self, id: &str, rest: &str) -> String {
        format!("{TRIGGERS}/{}/{}{rest}", self.tenant, encode_segment(id))
    }

    fn get(&self, id: &str, rest: &str) -> Question {
        Question { method: Method::GET, target: self.target(id, rest), body: None, version: None }
    }

    fn post(&self, id: &str, rest: &str, body: Map<String, Value>) -> Question {
        let body = Some(Value::Object(body));
        Question { method: Method::POST, target: self.target(id, rest), body, version: None }
    }

    /// What is answered to a question. Whatever changes something is asked once, and signed.
    fn ask(&self, question: Question) -> anyhow::Result<ApiResponse> {
        let Question { method, target, body, version } = question;
        let mut request = ApiRequest::new(method, target);
        if let Some(body) = body {
            request.body = body.to_string().into();
        }
        if let Some(version) = version {
            request.headers.insert(IF_MATCH, HeaderValue::from(version));
        }
        block_on(async {
            if request.method == Method::GET {
                return Ok(self.client.send(&request).await?);
            }
            request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            self.client.sign(&mut request)?;
            Ok(self.client.ask_once(&request).await?)
        })
    }

    /// The object that is answered to a question about this trigger.
    fn object(&self, id: &str, question: Question) -> anyhow::Result<Map<String, Value>> {
        let answer = self.ask(question)?;
        if !answer.status.is_success() {
            return Err(self.refusal(id, &answer));
        }
        parse_object(&answer, "triggers")
    }

    fn refusal(&self, id: &str, answer: &ApiResponse) -> anyhow::Error {
        match (answer.status, code(answer).as_str()) {
            (StatusCode::NOT_FOUND, "TRIGGER_NOT_FOUND" | "") => anyhow!(
                "there is no trigger {id:?}; `reveille trigger list` shows those that there are"
            ),
            (StatusCode::PRECONDITION_FAILED, _) => anyhow!(
                "trigger {id:?} was changed meanwhile ({}); `reveille trigger show {id}` shows it \
                 as it is now",
                message(answer)
            ),
            (_, "SIGNATURE_REQUIRED" | "SIGNATURE_MISMATCH") => anyhow!(
                "the server wants such a change signed with the caller's own key ({}); pass it \
                 with --key or REVEILLE_KEY",
                message(answer)
            ),
            (_, "DRY_RUN_NOT_FOUND") => anyhow!(
                "nothing of trigger {id:?} runs dry; `reveille trigger dry-run {id} --start` begins \
                 that"
            ),
            (_, "HEALTH_CHECK_FAILED") => anyhow!(
                "trigger {id:?} stays as it is: {}; mend the endpoint, or pass --force with a \
                 --reason",
                message(answer)
            ),
            _ => self.client.refusal(answer),
        }
    }
}

const CONTENT_TYPE: HeaderName = http::header::CONTENT_TYPE;

/// The code of an error's body.
fn code(answer: &ApiResponse) -> String {
    let json: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let code = json.as_ref().and_then(|it| it.get("error")?.get("code")?.as_str());
    code.unwrap_or_default().to_owned()
}

/// What somebody has said of it, in words: lists and maps with nothing in them say nothing.
fn described(trigger: &Map<String, Value>) -> Map<String, Value> {
    let fields = trigger.iter().filter_map(|(name, value)| {
        let value = match value {
            Value::Object(fields) => describe(fields).into(),
            value => value.clone(),
        };
        let is_empty = match &value {
            Value::Array(list) => list.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => false,
        };
        (!is_empty).then(|| (name.clone(), value))
    });
    fields.collect()
}

/// Fields in one line. What servers nest is not deep.
fn describe(fields: &Map<String, Value>) -> String {
    let parts = fields.iter().filter_map(|(name, value)| {
        let text = match value {
            Value::Object(inner) => match describe(inner) {
                inner if inner.is_empty() => inner,
                inner => format!("({inner})"),
            },
            Value::Array(items) if items.is_empty() => String::new(),
            value => cell_text(value),
        };
        (!text.is_empty()).then(|| format!("{name} {text}"))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Prints a trigger, and for people what the server warns of.
fn print_trigger(
    trigger: &Map<String, Value>,
    output: Output,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(trigger.clone()))?,
        Output::Human => print_fields(&described(trigger), "triggerId", out)?,
    }
    out.flush()?;
    for warning in trigger.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        eprintln!("warning: {}", warning.as_str().unwrap_or_default());
    }
    Ok(())
}

/// What is said behind a path, with what is in front of it.
fn query<const N: usize>(parameters: [(&str, Option<String>); N]) -> String {
    let given = parameters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let pairs: Vec<String> =
        given.map(|(name, value)| format!("{name}={}", encode(&value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

/// A draft is for the trigger that is named, and for no other.
fn take_id(fields: &mut Map<String, Value>, id: &str) -> anyhow::Result<()> {
    match fields.remove("triggerId") {
        Some(Value::String(other)) if other != id => {
            bail!("the file is for the trigger {other:?}, and {id:?} is to be changed")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_nested_is_told_in_one_line() {
        let trigger = json!({
            "filters": [], "headers": {}, "label": "", "events": ["create"], "version": 1,
            "rollout": { "percent": 10, "slo": { "maxErrorRate": 0.05, "maxP95LatencyMs": null } },
            "retryPolicy": { "maxAttempts": 3, "statusRules": [] },
        });
        let expected = json!({
            "events": ["create"], "version": 1, "rollout": "percent 10, slo (maxErrorRate 0.05)",
            "retryPolicy": "maxAttempts 3",
        });
        assert_eq!(Value::Object(described(trigger.as_object().unwrap())), expected);
    }
}
