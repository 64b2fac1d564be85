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
use super::{ApiRequest, Client, Output, ServerArguments, block_on, parse_object};

const PAGE: usize = 200;
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
  reveille secret create billing")]
    Create(NameArguments),
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
        SecretCommand::Create(arguments) => change(arguments, "", json!({}), &mut out),
        SecretCommand::List(arguments) => list(arguments, &mut out),
        SecretCommand::Rotate(Rotate { secret, overlap }) => {
            change(secret, "/rotate", json!({ "overlap": overlap }), &mut out)
        }
        SecretCommand::Revoke(arguments) => {
            change(arguments, "/revoke-previous", json!({}), &mut out)
        }
    }?;
    out.flush()?;
    Ok(())
}

/// Where the secrets of a tenant are.
fn place(server: &ServerArguments) -> String {
    let tenant = server.tenant.as_ref().map_or(OWN_TENANT, |it| it.as_str());
    format!("/admin/v1/tenants/{tenant}/secrets")
}

/// Asks once: what is made new by it would be made twice.
fn change(
    arguments: NameArguments,
    rest: &str,
    body: Value,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let NameArguments { name, output, server } = arguments;
    let target = format!("{}/{}{rest}", place(&server), encode_segment(&name));
    let client = Client::new(server)?;
    let mut request = ApiRequest::new(Method::POST, target);
    request.body = body.to_string().into();
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
        Output::Human if changed.is_empty() => writeln!(out, "secret {name} signs alone")?,
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
    let target = format!("{}?limit={PAGE}", place(&server));
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
