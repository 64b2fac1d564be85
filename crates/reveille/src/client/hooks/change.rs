//! `reveille hooks update`, `pause`, `resume` and `rotate-secret`.

use std::io::Write;

use anyhow::{anyhow, bail};
use clap::Args;
use http::{Method, StatusCode};
use reveille_core::time::parse_period_ms;
use serde_json::{Map, Value, json};

use super::super::list::ShowArguments;
use super::super::table::print_fields;
use super::super::url::encode_segment;
use super::super::{ApiRequest, Client, Output, ServerArguments, block_on, parse_object};

/// What `reveille hooks update` takes.
#[derive(Debug, Args)]
pub(crate) struct Update {
    /// Its id, as `reveille hooks list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// Another worker
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
    /// Another binding of the server (--binding)
    #[arg(long, value_name = "NAME", conflicts_with = "no_binding")]
    binding: Option<String>,
    /// No binding: the worker is called where --worker-url-template says
    #[arg(long)]
    no_binding: bool,
    /// Another method
    #[arg(long, value_name = "METHOD")]
    method: Option<String>,
    /// Another pattern, for the events that come from now on
    #[arg(long, value_name = "PATTERN")]
    pattern: Option<String>,
    /// Attempts in all
    #[arg(long, value_name = "COUNT")]
    max_retries: Option<u32>,
    /// How long an attempt may take
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    timeout: Option<u64>,
    /// The pause after the first failure; each further one is twice as long. What is not said of a
    /// schedule is as for a hook without one
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    retry_initial: Option<u64>,
    /// The longest pause
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    retry_max: Option<u64>,
    /// Gives a delivery up that fails at this age, even if attempts are left
    #[arg(long, value_name = "TIME", value_parser = parse_period)]
    give_up_after: Option<u64>,
    /// Attempts on their way at most, or none: no limit
    #[arg(long, value_name = "COUNT", value_parser = parse_limit)]
    concurrency: Option<Limit>,
    /// Attempts in a second at most, or none: no limit
    #[arg(long, value_name = "COUNT", value_parser = parse_limit)]
    rate_limit: Option<Limit>,
    /// Signs with this secret from now on
    #[arg(long, value_name = "SECRET", conflicts_with_all = ["new_secret", "no_secret"])]
    secret: Option<String>,
    /// Signs with a new secret from now on, and prints it this once; see rotate-secret for a change
    /// during which both are valid
    #[arg(long, conflicts_with = "no_secret")]
    new_secret: bool,
    /// Signs no longer
    #[arg(long)]
    no_secret: bool,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille hooks rotate-secret` takes.
#[derive(Debug, Args)]
pub(crate) struct RotateSecret {
    /// Its id, as `reveille hooks list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// How long deliveries are signed with both secrets, the old one first
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_period)]
    overlap: u64,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// A limit that a hook is to have.
#[derive(Debug, Clone, Copy)]
struct Limit(Option<u32>);

fn parse_limit(text: &str) -> Result<Limit, String> {
    if text == "none" {
        return Ok(Limit(None));
    }
    text.parse().map(|count| Limit(Some(count))).map_err(|_| "a limit is a number, or none".into())
}

/// Milliseconds.
fn parse_period(text: &str) -> Result<u64, String> {
    parse_period_ms(text).ok_or_else(|| "a time is written 500ms, 45s, 10m or 3d".to_owned())
}

pub(super) fn update(arguments: Update, out: &mut impl Write) -> anyhow::Result<()> {
    let body = update_body(&arguments);
    let Update { id, output, server, .. } = arguments;
    if body.is_empty() {
        bail!("nothing is to be changed; `reveille hooks update --help` shows what can be");
    }
    let target = format!("/subscriptions/{}", encode_segment(&id));
    let mut answer = ask(server, Method::PUT, target, &id, body)?;
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(answer.clone()))?,
        Output::Human => {
            if let Some(Value::Object(mut hook)) = answer.remove("subscription") {
                hook.extend(answer.get("secret").map(|it| ("secret".to_owned(), it.clone())));
                print_fields(&hook, "id", out)?;
            }
        }
    }
    out.flush()?;
    tell(&answer);
    Ok(())
}

fn update_body(arguments: &Update) -> Map<String, Value> {
    let Update { worker, binding, no_binding, method, pattern, .. } = arguments;
    let binding = binding.as_ref().map(|name| json!(name));
    let secret = match (&arguments.secret, arguments.new_secret, arguments.no_secret) {
        (Some(secret), ..) => Some(json!(secret)),
        (None, true, _) => Some(json!(true)),
        (None, false, true) => Some(json!(false)),
        (None, false, false) => None,
    };
    let Update { retry_initial, retry_max, give_up_after, .. } = arguments;
    let retry = [("initial", retry_initial), ("max", retry_max), ("giveUpAfter", give_up_after)];
    let retry = retry.into_iter().filter_map(|(name, ms)| Some((name.to_owned(), json!((*ms)?))));
    let retry: Map<String, Value> = retry.collect();
    let fields = [
        ("workerId", worker.as_ref().map(|it| json!(it))),
        ("workerBinding", if *no_binding { Some(Value::Null) } else { binding }),
        ("rpcMethod", method.as_ref().map(|it| json!(it))),
        ("pattern", pattern.as_ref().map(|it| json!(it))),
        ("maxRetries", arguments.max_retries.map(|it| json!(it))),
        ("timeoutMs", arguments.timeout.map(|it| json!(it))),
        ("retry", (!retry.is_empty()).then_some(Value::Object(retry))),
        ("concurrency", arguments.concurrency.map(|it| json!(it.0))),
        ("rateLimit", arguments.rate_limit.map(|it| json!(it.0))),
        ("secret", secret),
    ];
    let given = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    given.collect()
}

pub(super) fn pause(
    arguments: ShowArguments,
    paused: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let ShowArguments { id, output, server } = arguments;
    let target = format!("/subscriptions/{}", if paused { "pause" } else { "resume" });
    let body = Map::from_iter([("subscriptionId".to_owned(), id.as_str().into())]);
    let answer = ask(server, Method::POST, target, &id, body)?;
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(answer))?,
        Output::Human if paused => {
            let waiting = answer.get("waiting").and_then(Value::as_u64).unwrap_or(0);
            writeln!(out, "hook {id} is paused; {waiting} deliveries wait")?;
        }
        Output::Human if answer.get("active") == Some(&Value::Bool(false)) => {
            writeln!(out, "hook {id} is resumed, but it is not active: it was unsubscribed")?;
        }
        Output::Human => writeln!(out, "hook {id} goes on")?,
    }
    Ok(())
}

pub(super) fn rotate_secret(arguments: RotateSecret, out: &mut impl Write) -> anyhow::Result<()> {
    let RotateSecret { id, overlap, output, server } = arguments;
    let target = format!("/subscriptions/{}/rotate-secret", encode_segment(&id));
    let body = Map::from_iter([("overlap".to_owned(), overlap.into())]);
    let mut answer = ask(server, Method::POST, target, &id, body)?;
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(answer.clone()))?,
        Output::Human => {
            answer.remove("ok");
            print_fields(&answer, "subscriptionId", out)?;
        }
    }
    out.flush()?;
    tell(&answer);
    Ok(())
}

/// What only people want to know.
fn tell(answer: &Map<String, Value>) {
    for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        eprintln!("warning: {}", warning.as_str().unwrap_or_default());
    }
    if answer.contains_key("secret") {
        eprintln!("The secret is shown this once. Keep it: the server has it sealed.");
    }
}

/// Asks once: what is made new by it would be made twice.
fn ask(
    server: ServerArguments,
    method: Method,
    target: String,
    id: &str,
    body: Map<String, Value>,
) -> anyhow::Result<Map<String, Value>> {
    let client = Client::new(server)?;
    let mut request = ApiRequest::new(method, target);
    request.body = Value::Object(body).to_string().into();
    let answer = block_on(async {
        let response = client.send_once(&request).await?;
        Ok(client.read_response(response).await?)
    })?;
    match answer.status {
        StatusCode::OK => parse_object(&answer, "hooks"),
        StatusCode::NOT_FOUND => Err(anyhow!(
            "there is no hook {id:?}; `reveille hooks list` shows those that there are"
        )),
        _ => Err(client.refusal(&answer)),
    }
}
