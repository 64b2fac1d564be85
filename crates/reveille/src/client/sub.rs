//! `reveille sub`: webhook subscriptions on streams.

mod change;

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::{Args, Subcommand, ValueEnum};
use http::{Method, StatusCode};
use reveille_core::condition::WakeCondition;
use reveille_core::pattern::Pattern;
use reveille_core::time::parse_period_ms;
use reveille_core::{Millis, Offset};
use serde_json::{Map, Value, json};

use self::change::{RotateSecret, Update};
use super::list::{ListArguments, print_list};
use super::table::{ListPrinter, cell, print_fields};
use super::url::{encode, encode_segment};
use super::{ApiRequest, Client, Output, ServerArguments, parse_object};

/// Every subscription has a name of its own, so the pattern in the URL need not be the right one.
const ANY_PATTERN: &str = "/**";
/// Where subscriptions with leases are, which have names of their own.
const LEASES: &str = "/v1/stream/__ds/subscriptions/";
/// What answers are about.
const SUBSCRIPTIONS: &str = "subscriptions";

/// What `reveille sub` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum SubCommand {
    /// Makes a subscription, and prints the secret that signs its webhooks
    #[command(after_help = "\
The webhook is called when a stream that the pattern matches has events that were not acknowledged.
In a pattern `*` stands for one segment of a path and `**` for any number of them.

The secret is printed once, when the subscription is made. Asking again for the same subscription
changes nothing; asking for another one of the same name is refused.

Example:
  reveille sub create workers '/agents/*' --webhook https://example.com/wake
  reveille sub create digest '/logs/**' --webhook https://example.com/wake --max-delay 10m \\
    --wake-if 'bytes > 4096 || streams > 3'")]
    Create(Create),
    /// Lists subscriptions
    #[command(after_help = "\
Subscriptions with leases (/v1/stream/__ds/subscriptions/) are not in the list.

Example:
  reveille sub list
  reveille sub list '/agents/*' --output json")]
    List(List),
    /// Shows a subscription, without its secret
    #[command(after_help = "\
If there is none of this name, one with leases (/v1/stream/__ds/subscriptions/) is shown.

Example:
  reveille sub show workers")]
    Show(NameArguments),
    /// Changes a subscription; what its consumers have done stays
    #[command(after_help = "\
What is not named stays as it is. A wake that waits for its next attempt is sent at once, by the new
settings. --retry-initial, --retry-max and --give-up-after replace all three together. The pattern
cannot change.

Example:
  reveille sub update workers --webhook https://example.com/moved
  reveille sub update digest --max-delay 5m --clear wake-if")]
    Update(Update),
    /// Stops calling the webhook; what matches waits, and nothing is lost
    #[command(after_help = "\
Handlers that were called before may finish. An operator's key may pause and resume.

Example:
  reveille sub pause workers")]
    Pause(NameArguments),
    /// Goes on calling the webhook, with all that has waited
    #[command(after_help = "\
Example:
  reveille sub resume workers")]
    Resume(NameArguments),
    /// Makes another secret that signs the webhooks, and prints it
    #[command(after_help = "\
Until the overlap has passed each webhook has two signatures, that of the earlier secret first. Give
the handler the new secret when it takes any of several signatures, or when the overlap ends.

Example:
  reveille sub rotate-secret workers --overlap 3d")]
    RotateSecret(RotateSecret),
    /// Ends a subscription; its consumers are woken no longer
    #[command(after_help = "\
A subscription that is not there needs no end: that is no error. One with leases
(/v1/stream/__ds/subscriptions/) is not ended by this command, which says so.

Example:
  reveille sub delete workers")]
    Delete(NameArguments),
}

/// What `reveille sub create` takes.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name: letters, digits, `-`, `_`, `.` and `~`
    #[arg(value_name = "NAME")]
    name: String,
    /// The streams it is for
    #[arg(value_name = "PATTERN", value_parser = parse_pattern)]
    pattern: Pattern,
    /// The URL that is called
    #[arg(long, value_name = "URL")]
    webhook: String,
    /// A note for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// At least this long from one wake of a consumer to its next [default: 0ms]
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    min_interval: Option<String>,
    /// Events may wait this long to be announced together [default: they do not wait]
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    max_delay: Option<String>,
    /// Events that wait are announced as soon as this is true of them: CEL over `bytes`, `streams`
    /// and `waited_ms`; needs --max-delay
    #[arg(long, value_name = "CONDITION", value_parser = parse_condition, requires = "max_delay")]
    wake_if: Option<String>,
    /// What an answer of {"done": true} acknowledges [default: tail]
    #[arg(long, value_enum, value_name = "WHAT")]
    sync_done: Option<SyncDone>,
    /// Where to begin in streams that are there already: now, beginning, or an offset [default: now]
    #[arg(long, value_name = "WHERE", value_parser = parse_start)]
    start: Option<Value>,
    #[command(flatten)]
    retry: RetryArguments,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// How wakes that fail are made again.
#[derive(Debug, Args)]
struct RetryArguments {
    /// The pause before the first retry of a wake, from 10ms to 1h; it doubles each time
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    retry_initial: Option<String>,
    /// The longest pause between two attempts, up to 1d
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    retry_max: Option<String>,
    /// A consumer that fails for this long is given up, from 1m to 365d [default: the server's
    /// --consumer-gc-after]
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    give_up_after: Option<String>,
}

impl RetryArguments {
    /// As the server takes it, if anything is chosen.
    fn json(&self) -> Option<Value> {
        let fields = [
            ("initial", &self.retry_initial),
            ("max", &self.retry_max),
            ("giveUpAfter", &self.give_up_after),
        ];
        let given = fields.into_iter().filter_map(|(name, time)| Some((name, time.as_ref()?)));
        let given: Map<String, Value> =
            given.map(|(name, time)| (name.to_owned(), json!(time))).collect();
        (!given.is_empty()).then_some(Value::Object(given))
    }
}

/// What `reveille sub list` takes.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only subscriptions with this very pattern
    #[arg(value_name = "PATTERN", value_parser = parse_pattern)]
    pattern: Option<Pattern>,
    #[command(flatten)]
    list: ListArguments,
}

/// What takes a name alone.
#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SyncDone {
    /// Everything, events that came meanwhile included
    Tail,
    /// What the webhook was told of
    Snapshot,
}

impl SyncDone {
    fn as_str(self) -> &'static str {
        match self {
            SyncDone::Tail => "tail",
            SyncDone::Snapshot => "snapshot",
        }
    }
}

fn parse_pattern(text: &str) -> Result<Pattern, String> {
    Pattern::parse(text).map_err(|error| error.to_string())
}

/// A time is checked here and sent as it was written.
fn parse_period(text: &str) -> Result<String, String> {
    let known = parse_period_ms(text).map(|_| text.to_owned());
    known.ok_or_else(|| "write a whole number and a unit: 500ms, 45s, 10m, 1h or 3d".to_owned())
}

/// Where a subscription begins, as it is sent.
fn parse_start(text: &str) -> Result<Value, String> {
    match text {
        "now" | "beginning" => Ok(text.into()),
        offset => match offset.parse::<Offset>() {
            Ok(_) => Ok(json!({ "offset": offset })),
            Err(_) => Err("write `now`, `beginning` or a Stream-Next-Offset".to_owned()),
        },
    }
}

/// A condition is checked here and sent as it was written.
fn parse_condition(text: &str) -> Result<String, String> {
    WakeCondition::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

pub(crate) fn run(command: SubCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        SubCommand::Create(arguments) => create(arguments, &mut out),
        SubCommand::List(arguments) => list(arguments, &mut out),
        SubCommand::Show(arguments) => show(arguments, &mut out),
        SubCommand::Update(arguments) => change::update(arguments, &mut out),
        SubCommand::Pause(arguments) => change::pause(arguments, true, &mut out),
        SubCommand::Resume(arguments) => change::pause(arguments, false, &mut out),
        SubCommand::RotateSecret(arguments) => change::rotate_secret(arguments, &mut out),
        SubCommand::Delete(arguments) => delete(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn create(arguments: Create, out: &mut impl Write) -> anyhow::Result<()> {
    let Create { name, pattern, output, .. } = &arguments;
    let mut request =
        ApiRequest::new(Method::PUT, format!("{pattern}?subscription={}", encode(name)));
    request.body = request_body(&arguments).to_string().into();
    let output = *output;
    let client = Client::new(arguments.server)?;
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    let is_new = match answer.status {
        StatusCode::CREATED => true,
        StatusCode::OK => false,
        _ => return Err(client.refusal(&answer)),
    };
    let created = parse_object(&answer, SUBSCRIPTIONS)?;
    print_subscription(&created, output, out)?;
    // Programs read standard output; the sentence is for whoever reads along.
    let sentence = if is_new {
        "The secret is shown this once. Keep it: whoever receives the webhooks verifies them with it."
    } else {
        "The subscription was there already, as asked for. Its secret was shown when it was made; \
         if nobody has it, delete the subscription and create it again."
    };
    out.flush()?;
    eprintln!("{sentence}");
    Ok(())
}

fn request_body(arguments: &Create) -> Value {
    let sync_done = arguments.sync_done.map(SyncDone::as_str);
    let fields = [
        ("webhook", Some(arguments.webhook.as_str())),
        ("description", arguments.description.as_deref()),
        ("min_interval", arguments.min_interval.as_deref()),
        ("max_delay", arguments.max_delay.as_deref()),
        ("wake_if", arguments.wake_if.as_deref()),
        ("sync_done", sync_done),
    ];
    let given = fields.into_iter().filter_map(|(name, text)| Some((name, Value::from(text?))));
    let given = given.chain(arguments.retry.json().map(|retry| ("retry", retry)));
    let given = given.chain(arguments.start.clone().map(|start| ("start", start)));
    Value::Object(given.map(|(name, value)| (name.to_owned(), value)).collect())
}

fn list(arguments: List, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.list.server)?;
    let pattern = arguments.pattern.as_ref().map_or(ANY_PATTERN, Pattern::as_str);
    let mut list = ListPrinter::new(arguments.list.output, ["NAME", "PATTERN", "WEBHOOK"], row);
    let target = format!("{pattern}?subscriptions");
    super::block_on(print_list(&client, &target, SUBSCRIPTIONS, |_| true, &mut list, out))?;
    list.finish("there are no such subscriptions", out)?;
    Ok(())
}

fn row(subscription: &Value, _: Millis) -> [String; 3] {
    ["subscription_id", "pattern", "webhook"].map(|name| cell(subscription, name))
}

fn show(arguments: NameArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let name = &arguments.name;
    let found = super::block_on(async {
        match find(&client, subscription_target(name)).await? {
            None => find(&client, lease_target(name)).await,
            found => Ok(found),
        }
    })?;
    let found = found.ok_or_else(|| {
        anyhow!("there is no subscription {name:?}; `reveille sub list` shows those that there are")
    })?;
    print_subscription(&found, arguments.output, out)
}

/// What there is at a subscription's place.
async fn find(client: &Client, target: String) -> anyhow::Result<Option<Map<String, Value>>> {
    let answer = client.send(&ApiRequest::new(Method::GET, target)).await?;
    match answer.status {
        StatusCode::OK => parse_object(&answer, SUBSCRIPTIONS).map(Some),
        // What is no name is nobody's.
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => Ok(None),
        _ => Err(client.refusal(&answer)),
    }
}

fn delete(arguments: NameArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let name = &arguments.name;
    let is_deleted = super::block_on(end_subscription(&client, name))?;
    match (arguments.output, is_deleted) {
        (Output::Json, true) => writeln!(out, "{}", serde_json::json!({ "deleted": name }))?,
        (Output::Json, false) => writeln!(out, "{}", serde_json::json!({ "deleted": null }))?,
        (Output::Human, true) => writeln!(out, "subscription {name} has ended")?,
        (Output::Human, false) => writeln!(out, "there was no subscription {name}")?,
    }
    Ok(())
}

/// Ends a subscription; says whether there was one. The server's answer is the same for both.
async fn end_subscription(client: &Client, name: &str) -> anyhow::Result<bool> {
    if find(client, subscription_target(name)).await?.is_none() {
        let target = lease_target(name);
        return match find(client, target.clone()).await? {
            None => Ok(false),
            Some(_) => Err(anyhow!(
                "{name:?} is a subscription with leases and goes on; end it with \
                 `curl -X DELETE {}{target}`",
                client.url
            )),
        };
    }
    let answer = client.send(&ApiRequest::new(Method::DELETE, subscription_target(name))).await?;
    match answer.status {
        StatusCode::NO_CONTENT => Ok(true),
        _ => Err(client.refusal(&answer)),
    }
}

fn subscription_target(name: &str) -> String {
    format!("{ANY_PATTERN}?subscription={}", encode(name))
}

fn lease_target(name: &str) -> String {
    format!("{LEASES}{}", encode_segment(name))
}

/// A subscription, with whatever the server says of it.
fn print_subscription(
    subscription: &Map<String, Value>,
    output: Output,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(subscription.clone()))?,
        Output::Human => print_fields(subscription, "subscription_id", out)?,
    }
    Ok(())
}
