//! `reveille token`: capability tokens, by which somebody may subscribe to facts.

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::Millis;
use reveille_core::fact::token::Verb;
use reveille_core::time::parse_period_ms;
use serde_json::{Value, json};

use super::fact::print_one;
use super::list::{ListArguments, print_list};
use super::table::{ListPrinter, cell, moment_cell};
use super::url::encode_segment;
use super::{ApiRequest, Client, Output, ServerArguments};

const TOKENS: &str = "/v1/federation/capability-tokens";
const PAGE: usize = 500;

/// What `reveille token` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Issues a token to somebody
    #[command(after_help = "\
The holder is known by the token: a subscription looks for one of theirs that covers its target, or
is made with the one in the header Stigmem-Capability. A token covers its own object and no other;
`*` covers everything in the tenant.

Example:
  reveille token issue --subject user:alice --verb subscribe --object scope:company
  reveille token issue --subject user:alice --verb subscribe --object entity:user:bob --ttl 30d")]
    Issue(Issue),
    /// Lists tokens, without what they are
    #[command(after_help = "\
Example:
  reveille token list")]
    List(ListArguments),
    /// Revokes a token: subscriptions that rest on it are told of nothing more
    #[command(after_help = "\
Example:
  reveille token revoke 00000000-0000-8003-8000-000000000009 --reason 'left the project'")]
    Revoke(Revoke),
}

/// What `reveille token issue` takes.
#[derive(Debug, Args)]
pub(crate) struct Issue {
    /// Who may, by the entity that their key names
    #[arg(long, value_name = "ENTITY")]
    subject: String,
    /// What they may do: subscribe, read or write
    #[arg(long, value_name = "VERB", default_value = "subscribe", value_parser = verbs(), hide_possible_values = true)]
    verb: String,
    /// To what: a target like scope:company or entity:user:bob, or `*`
    #[arg(long, value_name = "OBJECT")]
    object: String,
    /// For how long, 90d at most
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_ttl)]
    ttl: u64,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille token revoke` takes.
#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// Its id, as the list shows it
    #[arg(value_name = "ID")]
    id: String,
    /// Why, for whoever looks at it later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

fn verbs() -> PossibleValuesParser {
    PossibleValuesParser::new(Verb::ALL.map(Verb::as_str))
}

/// Whole seconds, at least one.
fn parse_ttl(text: &str) -> Result<u64, String> {
    let seconds = parse_period_ms(text).map(|ms| ms / 1_000).filter(|seconds| *seconds > 0);
    seconds.ok_or_else(|| "write a time of a second or more, like 90s, 10m, 1h or 30d".to_owned())
}

pub(crate) fn run(command: TokenCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        TokenCommand::Issue(arguments) => issue(arguments, &mut out),
        TokenCommand::List(arguments) => list(arguments, &mut out),
        TokenCommand::Revoke(arguments) => revoke(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn issue(arguments: Issue, out: &mut impl Write) -> anyhow::Result<()> {
    let Issue { subject, verb, object, ttl, output, server } = arguments;
    let client = Client::new(server)?;
    let mut request = ApiRequest::new(Method::POST, TOKENS);
    let body = json!({ "subject": subject, "verb": verb, "object": object, "ttl_seconds": ttl });
    request.body = body.to_string().into();
    // Asked once: a repeated request would make a second token that nobody has seen.
    let answer = super::block_on(async {
        Ok(client.read_response(client.send_once(&request).await?).await?)
    })?;
    match answer.status {
        StatusCode::CREATED => print_one(&answer, "tokens", "token_id", output, out),
        _ => Err(client.refusal(&answer)),
    }
}

fn list(arguments: ListArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let head = ["ID", "SUBJECT", "VERB", "OBJECT", "EXPIRES", "STATUS"];
    let mut list = ListPrinter::new(arguments.output, head, row);
    let target = format!("{TOKENS}?limit={PAGE}");
    super::block_on(print_list(&client, &target, "tokens", |_| true, &mut list, out))?;
    list.finish("there are no tokens", out)?;
    Ok(())
}

fn row(token: &Value, now: Millis) -> [String; 6] {
    [
        cell(token, "token_id"),
        cell(token, "subject"),
        cell(token, "verb"),
        cell(token, "object"),
        moment_cell(token, "expires_at", now),
        cell(token, "status"),
    ]
}

fn revoke(arguments: Revoke, out: &mut impl Write) -> anyhow::Result<()> {
    let Revoke { id, reason, output, server } = arguments;
    let client = Client::new(server)?;
    let mut request =
        ApiRequest::new(Method::POST, format!("{TOKENS}/{}/revoke", encode_segment(&id)));
    request.body = json!({ "reason": reason }).to_string().into();
    // Asked once: revoked twice, the second answer would say that it was revoked already.
    let answer = super::block_on(async {
        Ok(client.read_response(client.send_once(&request).await?).await?)
    })?;
    match (answer.status, output) {
        (StatusCode::OK, Output::Json) => print_one(&answer, "tokens", "token_id", output, out)?,
        (StatusCode::OK, Output::Human) => writeln!(out, "token {id} is revoked")?,
        (StatusCode::NOT_FOUND, _) => {
            return Err(anyhow!(
                "there is no token {id:?}; `reveille token list` shows those that there are"
            ));
        }
        _ => return Err(client.refusal(&answer)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_for_whole_seconds() {
        assert_eq!(parse_ttl("1h"), Ok(3_600));
        assert_eq!(parse_ttl("1500ms"), Ok(1));
        assert!(parse_ttl("500ms").is_err() && parse_ttl("3").is_err());
    }

    #[test]
    fn a_row_says_whether_it_still_holds() {
        let token = json!({ "token_id": "t", "subject": "user:a", "verb": "subscribe",
                            "object": "scope:company", "expires_at": 3_600_000, "status": "active" });
        let expected = ["t", "user:a", "subscribe", "scope:company", "in 1h", "active"];
        assert_eq!(row(&token, Millis(0)), expected);
    }
}
