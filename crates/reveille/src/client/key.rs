//! `reveille key`: the keys that let people and programs in.

use std::io::{self, BufWriter, Write};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::key::{Permission, Role};
use reveille_core::{Millis, Tenant};
use serde_json::{Value, json};

use super::list::{ListArguments, ShowArguments, print_list};
use super::table::{ListPrinter, cell, cell_text};
use super::url::encode;
use super::{ApiRequest, Client, ConnectionArguments, Output, parse_object, parse_tenant};

/// Where keys are.
const KEYS: &str = "/admin/v1/keys";
const PAGE: usize = 1_000;

/// What `reveille key` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Makes a key, and prints it this once
    #[command(after_help = "\
The server keeps a hash of the key alone: whoever loses the key makes another one.

A user works with streams, subscriptions and what else holds data; an operator looks at what is
there and runs it; an admin may do everything, and make keys. Each of them in the key's tenant;
with --all-tenants an admin in every one.

Example:
  reveille key create --tenant acme --role user
  reveille key create --tenant acme --role user --permission read --description dashboards")]
    Create(Create),
    /// Lists keys, without what they are
    #[command(after_help = "\
Example:
  reveille key list
  reveille key list --output json")]
    List(ListArguments),
    /// Revokes a key: from then on nobody is let in by it
    #[command(after_help = "\
Example:
  reveille key revoke key_019a8b7c6d512345678")]
    Revoke(ShowArguments),
}

/// What `reveille key create` takes.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Whose key it is
    #[arg(long, value_name = "TENANT", value_parser = parse_tenant, required_unless_present = "all_tenants")]
    tenant: Option<Tenant>,
    /// An admin key that is good in every tenant
    #[arg(long, conflicts_with = "tenant")]
    all_tenants: bool,
    /// What its holder is: admin, operator or user (repeatable)
    #[arg(long = "role", value_name = "ROLE", required = true, value_parser = roles(), hide_possible_values = true)]
    roles: Vec<String>,
    /// What its holder may do with data: read or write (repeatable) [default: both]
    #[arg(long = "permission", value_name = "PERMISSION", value_parser = permissions(), hide_possible_values = true)]
    permissions: Vec<String>,
    /// Who its holder is, among facts
    #[arg(long, value_name = "URI")]
    entity_uri: Option<String>,
    /// A scope of facts that its holder may read (repeatable)
    #[arg(long = "scope", value_name = "SCOPE")]
    scopes: Vec<String>,
    /// A note for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ConnectionArguments,
}

fn roles() -> PossibleValuesParser {
    PossibleValuesParser::new(Role::ALL.map(Role::as_str))
}

fn permissions() -> PossibleValuesParser {
    PossibleValuesParser::new(Permission::ALL.map(Permission::as_str))
}

pub(crate) fn run(command: KeyCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        KeyCommand::Create(arguments) => create(arguments, &mut out),
        KeyCommand::List(arguments) => list(arguments, &mut out),
        KeyCommand::Revoke(arguments) => revoke(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn create(arguments: Create, out: &mut impl Write) -> anyhow::Result<()> {
    let mut request = ApiRequest::new(Method::POST, KEYS);
    request.body = json!({
        "tenant": arguments.tenant.as_ref().map(Tenant::as_str),
        "roles": arguments.roles,
        "entity_uri": arguments.entity_uri,
        "permissions": arguments.permissions,
        "scopes": arguments.scopes,
        "description": arguments.description,
    })
    .to_string()
    .into();
    let client = Client::new(arguments.server)?;
    // Asked once: a repeated request would make a second key that nobody has seen.
    let answer = super::block_on(async {
        let response = client.send_once(&request).await?;
        Ok(client.read_response(response).await?)
    })?;
    if answer.status != StatusCode::CREATED {
        return Err(client.refusal(&answer));
    }
    let created = parse_object(&answer, "keys")?;
    match arguments.output {
        Output::Json => writeln!(out, "{:#}", Value::Object(created))?,
        Output::Human => {
            for name in ["id", "key"] {
                let text = created.get(name).map(cell_text).unwrap_or_default();
                writeln!(out, "{name:3}  {text}")?;
            }
        }
    }
    // Programs read standard output; the sentence is for whoever reads along.
    out.flush()?;
    eprintln!("The key is shown this once. Keep it: the server has only a hash of it.");
    Ok(())
}

fn list(arguments: ListArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let head = ["ID", "TENANT", "ROLES", "PERMISSIONS", "DESCRIPTION"];
    let mut list = ListPrinter::new(arguments.output, head, row);
    let target = format!("{KEYS}?limit={PAGE}");
    super::block_on(print_list(&client, &target, "keys", |_| true, &mut list, out))?;
    list.finish("there are no keys", out)?;
    Ok(())
}

fn row(key: &Value, _: Millis) -> [String; 5] {
    let tenant = key.get("tenant").filter(|tenant| !tenant.is_null());
    let permissions = Some(cell(key, "permissions")).filter(|text| !text.is_empty());
    [
        cell(key, "id"),
        tenant.map_or_else(|| "(all)".to_owned(), cell_text),
        cell(key, "roles"),
        permissions.unwrap_or_else(|| "read,write".to_owned()),
        cell(key, "description"),
    ]
}

fn revoke(arguments: ShowArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let request = ApiRequest::new(Method::DELETE, format!("{KEYS}/{}", encode(&arguments.id)));
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    match (answer.status, arguments.output) {
        (StatusCode::NO_CONTENT, Output::Json) => {
            writeln!(out, "{}", json!({ "revoked": arguments.id }))?;
        }
        (StatusCode::NO_CONTENT, Output::Human) => {
            writeln!(out, "key {} is revoked", arguments.id)?;
        }
        (StatusCode::NOT_FOUND, _) => {
            return Err(anyhow!(
                "there is no key {:?}; `reveille key list` shows those that there are",
                arguments.id
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
    fn a_row_says_what_is_left_out() {
        let key = json!({ "id": "key_1", "tenant": null, "roles": ["admin"], "permissions": [],
                          "description": null });
        assert_eq!(row(&key, Millis(0)), ["key_1", "(all)", "admin", "read,write", ""]);
        let key = json!({ "id": "key_22", "tenant": "acme", "roles": ["operator", "user"],
                          "permissions": ["read"], "description": "dashboards" });
        assert_eq!(row(&key, Millis(0)), ["key_22", "acme", "operator,user", "read", "dashboards"]);
    }
}
