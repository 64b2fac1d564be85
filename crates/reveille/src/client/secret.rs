//! `reveille secret`: what signs the calls of triggers.

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::{Args, Subcommand};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use reveille_core::Millis;
use reveille_core::time::parse_period_ms;
use serde_json::{Map, Value, json};

use super::list::{ListArguments, print_list};
use super::table::{ListPrinter, cell, moment_cell, print_fields};
use super::trigger::OWN_TENANT;
use super::url::encode_segment;
use super::{ApiRequest, Client, Output, ServerArguments, block_on, parse_object, stdin};
use crate::failure::usage_error;

/// The one that signs for triggers that name none.
const DEFAULT: &str = "default";

/// What `reveille secret` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Makes a secret, and prints it this once
    #[command(after_help = "\
A trigger names its secret in `secretsRef`; the one called `default` is that of all others.

Example:
  reveille secret create
  reveille secret create billing
  pass show billing | reveille secret create billing --value -")]
    Create(Create),
    /// Lists secrets, without what they are
    #[command(after_help = "\
Example:
  reveille secret list
  reveille secret list --output json")]
    List(ListArguments),
    /// Replaces a secret, and prints the new one this once
    #[command(after_help = "\
Until the overlap ends calls have two signatures, that of the new secret first: a handler that takes
any of them is given the new secret at any time meanwhile.

Example:
  reveille secret rotate --overlap 24h
  reveille secret rotate billing --overlap 0s")]
    Rotate(Rotate),
    /// Ends the overlap of a rotation: the secret before signs no longer
    #[command(after_help = "\
Example:
  reveille secret revoke billing")]
    Revoke(NameArguments),
    /// Removes a secret that no trigger names
    #[command(after_help = "\
Example:
  reveille secret delete billing")]
    Delete(NameArguments),
}

/// What `reveille secret create` takes.
#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    secret: NameArguments,
    #[command(flatten)]
    value: ValueArguments,
}

/// A secret that somebody brings along.
#[derive(Debug, Args)]
pub(crate) struct ValueArguments {
    /// This very secret, or - for standard input [default: one that is made]
    #[arg(long, value_name = "SECRET")]
    value: Option<String>,
}

/// Which secret.
#[derive(Debug, Args)]
pub(crate) struct NameArguments {
    /// Its name, as `secretsRef` of triggers has it
    #[arg(value_name = "NAME", default_value = DEFAULT)]
    name: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille secret rotate` takes.
#[derive(Debug, Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    secret: NameArguments,
    /// How long both sign
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_period)]
    overlap: String,
    #[command(flatten)]
    value: ValueArguments,
}

fn parse_period(text: &str) -> Result<String, String> {
    match parse_period_ms(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("a time is written 500ms, 45s, 10m or 3d".to_owned()),
    }
}

pub(crate) fn run(command: SecretCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        SecretCommand::Create(Create { secret, value }) => {
            let body = with_value(None, value)?;
            change(secret, (Method::POST, ""), Some(body), &mut out)
        }
        SecretCommand::List(arguments) => list(arguments, &mut out),
        SecretCommand::Rotate(Rotate { secret, overlap, value }) => {
            let body = with_value(Some(overlap), value)?;
            change(secret, (Method::POST, "/rotate"), Some(body), &mut out)
        }
        SecretCommand::Revoke(secret) => {
            change(secret, (Method::POST, "/revoke-previous"), Some(json!({})), &mut out)
        }
        SecretCommand::Delete(secret) => change(secret, (Method::DELETE, ""), None, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

/// Where the secrets of a tenant are.
fn place(server: &ServerArguments) -> String {
    let tenant = server.tenant.as_ref().map_or(OWN_TENANT, |it| it.as_str());
    format!("/admin/v1/tenants/{tenant}/secrets")
}

/// A body with the secret that somebody has brought along.
fn with_value(overlap: Option<String>, value: ValueArguments) -> anyhow::Result<Value> {
    let overlap = overlap.map(|it| ("overlap".to_owned(), Value::from(it)));
    let mut body = Map::from_iter(overlap);
    let value = match value.value.as_deref() {
        None => return Ok(Value::Object(body)),
        Some("-") => String::from_utf8(stdin::read_all()?)
            .map_err(|_| usage_error("the secret on standard input is not text"))?,
        Some(value) => value.to_owned(),
    };
    // What prints a secret ends its line.
    body.insert("secret".to_owned(), value.trim_end_matches(['\r', '\n']).into());
    Ok(Value::Object(body))
}

/// Asks once: what is made new by it would be made twice.
fn change(
    arguments: NameArguments,
    (method, rest): (Method, &str),
    body: Option<Value>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let NameArguments { name, output, server } = arguments;
    let target = format!("{}/{}{rest}", place(&server), encode_segment(&name));
    let client = Client::new(server)?;
    let mut request = ApiRequest::new(method, target);
    request.body = body.map(|body| body.to_string()).unwrap_or_default().into();
    request.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    client.sign(&mut request)?;
    let answer = block_on(async { Ok(client.ask_once(&request).await?) })?;
    let changed = match answer.status {
        StatusCode::NO_CONTENT => Map::new(),
        status if status.is_success() => parse_object(&answer, "secrets")?,
        StatusCode::NOT_FOUND => {
            return Err(anyhow!(
                "there is no secret {name:?}; `reveille secret list` shows those that there are"
            ));
        }
        _ => return Err(client.refusal(&answer)),
    };
    match output {
        Output::Json => writeln!(out, "{:#}", Value::Object(changed.clone()))?,
        Output::Human if changed.is_empty() => writeln!(out, "secret {name} is deleted")?,
        Output::Human => print_fields(&changed, "secretsRef", out)?,
    }
    out.flush()?;
    if changed.contains_key("secret") {
        eprintln!("The secret is shown this once. Keep it: the server has it sealed.");
    }
    Ok(())
}

fn list(arguments: ListArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let ListArguments { output, server } = arguments;
    let target = place(&server);
    let client = Client::new(server)?;
    let head = ["NAME", "BEGINS WITH", "MADE", "BEFORE IT", "WHICH SIGNS UNTIL"];
    let mut list = ListPrinter::new(output, head, row);
    block_on(print_list(&client, &target, "secrets", |_| true, &mut list, out))?;
    list.finish("there are no secrets; `reveille secret create` makes one", out)?;
    Ok(())
}

fn row(secret: &Value, now: Millis) -> [String; 5] {
    let previous = secret.get("previous").cloned().unwrap_or_default();
    [
        cell(secret, "secretsRef"),
        cell(secret, "prefix"),
        moment_cell(secret, "createdAt", now),
        cell(&previous, "prefix"),
        moment_cell(&previous, "validUntil", now),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_until_when_the_secret_before_signs() {
        let secret = json!({
            "secretsRef": "billing", "prefix": "whsec_abcd", "createdAt": 1_000,
            "previous": { "prefix": "whsec_efgh", "validUntil": 181_000 },
        });
        let expected = ["billing", "whsec_abcd", "1m ago", "whsec_efgh", "in 2m"];
        assert_eq!(row(&secret, Millis(61_000)), expected);
        let alone = json!({ "secretsRef": "a", "prefix": "p", "createdAt": 1_000 });
        assert_eq!(row(&alone, Millis(1_000)), ["a", "p", "now", "", ""]);
    }
}
