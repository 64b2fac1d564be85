//! `reveille sub update|pause|resume|rotate-secret`: a subscription changes in place.

use std::io::Write;

use anyhow::anyhow;
use clap::{Args, ValueEnum};
use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::{
    NameArguments, RetryArguments, SUBSCRIPTIONS, SyncDone, parse_condition, parse_period,
    print_subscription, subscription_target,
};
use crate::client::{self, ApiRequest, Client, Output, ServerArguments, parse_object};
use crate::failure::usage_error;

/// What `reveille sub update` takes.
#[derive(Debug, Args)]
pub(crate) struct Update {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// Another URL that is called
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// Another note for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// At least this long from one wake of a consumer to its next
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    min_interval: Option<String>,
    /// Events may wait this long to be announced together
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    max_delay: Option<String>,
    /// Events that wait are announced as soon as this is true of them
    #[arg(long, value_name = "CONDITION", value_parser = parse_condition)]
    wake_if: Option<String>,
    /// What an answer of {"done": true} acknowledges
    #[arg(long, value_enum, value_name = "WHAT")]
    sync_done: Option<SyncDone>,
    #[command(flatten)]
    retry: RetryArguments,
    /// What is to be as if it had never been chosen (repeatable)
    #[arg(long, value_enum, value_name = "WHAT")]
    clear: Vec<Clear>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What can be cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clear {
    Description,
    MinInterval,
    MaxDelay,
    WakeIf,
    SyncDone,
    /// All of --retry-initial, --retry-max and --give-up-after
    Retry,
}

impl Clear {
    fn field(self) -> &'static str {
        match self {
            Clear::Description => "description",
            Clear::MinInterval => "min_interval",
            Clear::MaxDelay => "max_delay",
            Clear::WakeIf => "wake_if",
            Clear::SyncDone => "sync_done",
            Clear::Retry => "retry",
        }
    }
}

/// What `reveille sub rotate-secret` takes.
#[derive(Debug, Args)]
pub(crate) struct RotateSecret {
    /// Its name
    #[arg(value_name = "NAME")]
    name: String,
    /// How long the secret of before goes on signing beside the new one
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_period)]
    overlap: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

pub(super) fn update(arguments: Update, out: &mut impl Write) -> anyhow::Result<()> {
    let body = update_body(&arguments)?;
    let changed = send(arguments.server, &arguments.name, &Value::Object(body))?;
    print_subscription(&changed, arguments.output, out)
}

fn update_body(arguments: &Update) -> anyhow::Result<Map<String, Value>> {
    let texts = [
        ("webhook", arguments.webhook.as_deref()),
        ("description", arguments.description.as_deref()),
        ("min_interval", arguments.min_interval.as_deref()),
        ("max_delay", arguments.max_delay.as_deref()),
        ("wake_if", arguments.wake_if.as_deref()),
        ("sync_done", arguments.sync_done.map(SyncDone::as_str)),
    ];
    let given = texts.into_iter().filter_map(|(name, text)| Some((name, Value::from(text?))));
    let given = given.chain(arguments.retry.json().map(|retry| ("retry", retry)));
    let mut body: Map<String, Value> =
        given.map(|(name, value)| (name.to_owned(), value)).collect();
    for clear in &arguments.clear {
        if body.get(clear.field()).is_some_and(|value| !value.is_null()) {
            let message = format!("`{}` is both given and cleared; choose one", clear.field());
            return Err(usage_error(message));
        }
        body.insert(clear.field().to_owned(), Value::Null);
    }
    if body.is_empty() {
        return Err(usage_error(
            "nothing to change; say what, for example --webhook https://example.com/wake",
        ));
    }
    Ok(body)
}

pub(super) fn pause(
    arguments: NameArguments,
    paused: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let changed = send(arguments.server, &arguments.name, &json!({ "paused": paused }))?;
    print_subscription(&changed, arguments.output, out)?;
    out.flush()?;
    // Programs read standard output; the sentence is for whoever reads along.
    eprintln!(
        "{}",
        if paused {
            "Nobody is called for it. What matches waits; `reveille sub resume` tells them of it."
        } else {
            "It goes on: whoever has work is called."
        }
    );
    Ok(())
}

pub(super) fn rotate_secret(arguments: RotateSecret, out: &mut impl Write) -> anyhow::Result<()> {
    let body = json!({ "rotate_secret": { "overlap": arguments.overlap } });
    let changed = send(arguments.server, &arguments.name, &body)?;
    print_subscription(&changed, arguments.output, out)?;
    out.flush()?;
    eprintln!(
        "The new secret is shown this once. Until the overlap has passed both sign, the one of before \
         first."
    );
    Ok(())
}

/// Changes a subscription, and returns what it is now.
fn send(server: ServerArguments, name: &str, body: &Value) -> anyhow::Result<Map<String, Value>> {
    let client = Client::new(server)?;
    let mut request = ApiRequest::new(Method::PATCH, subscription_target(name));
    request.body = body.to_string().into();
    let answer = client::block_on(async { Ok(client.send(&request).await?) })?;
    match answer.status {
        StatusCode::OK => parse_object(&answer, SUBSCRIPTIONS),
        StatusCode::NOT_FOUND => Err(anyhow!(
            "there is no subscription {name:?}; `reveille sub list` shows those that there are"
        )),
        _ => Err(client.refusal(&answer)),
    }
}
