//! `reveille garden`: facts for members alone, and who they are.

use std::io::{self, BufWriter, Write};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use http::{Method, StatusCode};
use reveille_core::Millis;
use reveille_core::fact::Scope;
use reveille_core::fact::garden::GardenRole;
use serde_json::{Value, json};

use super::fact::print_one;
use super::list::{ListArguments, print_list};
use super::table::{ListPrinter, cell, moment_cell};
use super::url::encode_segment;
use super::{ApiRequest, Client, Output, ServerArguments};

const GARDENS: &str = "/v1/gardens";
const PAGE: usize = 500;

/// What `reveille garden` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum GardenCommand {
    /// Makes a garden, whose first admin you are
    #[command(after_help = "\
Example:
  reveille garden create atlas --name 'Project Atlas' --scope team")]
    Create(Create),
    /// Lists the gardens that you belong to
    #[command(after_help = "\
Example:
  reveille garden list")]
    List(ListArguments),
    /// Shows a garden
    #[command(after_help = "\
Example:
  reveille garden show atlas")]
    Show(One),
    /// Deletes a garden: nobody reads its facts any more
    #[command(after_help = "\
Subscriptions of those who belonged to it are cancelled with the next event that they may not have.

Example:
  reveille garden delete atlas")]
    Delete(One),
    /// Lists who belongs to a garden
    #[command(after_help = "\
Example:
  reveille garden members atlas")]
    Members(Members),
    /// Adds a member
    #[command(after_help = "\
Readers read; writers write as well; admins also say who belongs to the garden.

Example:
  reveille garden add atlas user:alice --role writer")]
    Add(Add),
    /// Removes a member: from then on they are told of nothing more
    #[command(after_help = "\
Example:
  reveille garden remove atlas user:alice")]
    Remove(Remove),
}

/// What `reveille garden create` takes.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name in paths: small letters, digits and `-`
    #[arg(value_name = "SLUG")]
    slug: String,
    /// Its name for people [default: the slug]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The scope of its facts: local, team, company or public
    #[arg(long, value_name = "SCOPE", default_value = "local", value_parser = scopes(), hide_possible_values = true)]
    scope: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// Which garden, and how it is printed.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// The garden's slug
    #[arg(value_name = "SLUG")]
    slug: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille garden members` takes.
#[derive(Debug, Args)]
pub(crate) struct Members {
    /// The garden's slug
    #[arg(value_name = "SLUG")]
    slug: String,
    #[command(flatten)]
    list: ListArguments,
}

/// What `reveille garden add` takes.
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The garden's slug
    #[arg(value_name = "SLUG")]
    slug: String,
    /// Who, like user:alice
    #[arg(value_name = "ENTITY")]
    entity: String,
    /// What they are there: admin, writer or reader
    #[arg(long, value_name = "ROLE", default_value = "reader", value_parser = roles(), hide_possible_values = true)]
    role: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille garden remove` takes.
#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The garden's slug
    #[arg(value_name = "SLUG")]
    slug: String,
    /// Who
    #[arg(value_name = "ENTITY")]
    entity: String,
    #[command(flatten)]
    server: ServerArguments,
}

fn scopes() -> PossibleValuesParser {
    PossibleValuesParser::new(Scope::ALL.map(Scope::as_str))
}

fn roles() -> PossibleValuesParser {
    PossibleValuesParser::new(GardenRole::ALL.map(GardenRole::as_str))
}

pub(crate) fn run(command: GardenCommand) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        GardenCommand::Create(arguments) => create(arguments, &mut out),
        GardenCommand::List(arguments) => list(arguments, &mut out),
        GardenCommand::Show(arguments) => show(arguments, &mut out),
        GardenCommand::Delete(arguments) => delete(arguments, &mut out),
        GardenCommand::Members(arguments) => members(arguments, &mut out),
        GardenCommand::Add(arguments) => add(arguments, &mut out),
        GardenCommand::Remove(arguments) => remove(arguments, &mut out),
    }?;
    out.flush()?;
    Ok(())
}

fn create(arguments: Create, out: &mut impl Write) -> anyhow::Result<()> {
    let Create { slug, name, scope, output, server } = arguments;
    let name = name.unwrap_or_else(|| slug.clone());
    let body = json!({ "slug": slug, "name": name, "scope": scope });
    post(server, GARDENS, &body, ("gardens", "slug", output), out)
}

/// Posts something that is made, once, and prints what came of it.
fn post(
    server: ServerArguments,
    target: &str,
    body: &Value,
    (about, first, output): (&str, &str, Output),
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let mut request = ApiRequest::new(Method::POST, target);
    request.body = body.to_string().into();
    let answer = super::block_on(async {
        Ok(client.read_response(client.send_once(&request).await?).await?)
    })?;
    match answer.status {
        StatusCode::CREATED => print_one(&answer, about, first, output, out),
        _ => Err(client.refusal(&answer)),
    }
}

fn list(arguments: ListArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let head = ["SLUG", "NAME", "SCOPE", "ROLE", "CREATED"];
    let mut list = ListPrinter::new(arguments.output, head, garden_row);
    let target = format!("{GARDENS}?limit={PAGE}");
    super::block_on(print_list(&client, &target, "gardens", |_| true, &mut list, out))?;
    list.finish("you belong to no garden", out)?;
    Ok(())
}

fn garden_row(garden: &Value, now: Millis) -> [String; 5] {
    [
        cell(garden, "slug"),
        cell(garden, "name"),
        cell(garden, "scope"),
        cell(garden, "role"),
        moment_cell(garden, "created_at", now),
    ]
}

fn show(arguments: One, out: &mut impl Write) -> anyhow::Result<()> {
    let One { slug, output, server } = arguments;
    let client = Client::new(server)?;
    let request = ApiRequest::new(Method::GET, garden_path(&slug));
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    match answer.status {
        StatusCode::OK => print_one(&answer, "gardens", "slug", output, out),
        _ => Err(client.refusal(&answer)),
    }
}

fn delete(arguments: One, out: &mut impl Write) -> anyhow::Result<()> {
    let One { slug, output, server } = arguments;
    let client = Client::new(server)?;
    let request = ApiRequest::new(Method::DELETE, garden_path(&slug));
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    match (answer.status, output) {
        (StatusCode::NO_CONTENT, Output::Json) => writeln!(out, "{}", json!({ "deleted": slug }))?,
        (StatusCode::NO_CONTENT, Output::Human) => writeln!(out, "garden {slug} is deleted")?,
        _ => return Err(client.refusal(&answer)),
    }
    Ok(())
}

fn members(arguments: Members, out: &mut impl Write) -> anyhow::Result<()> {
    let Members { slug, list } = arguments;
    let client = Client::new(list.server)?;
    let head = ["ENTITY", "ROLE", "ADDED"];
    let mut printer = ListPrinter::new(list.output, head, member_row);
    let target = format!("{}/members?limit={PAGE}", garden_path(&slug));
    super::block_on(print_list(&client, &target, "members", |_| true, &mut printer, out))?;
    printer.finish("nobody belongs to it", out)?;
    Ok(())
}

fn member_row(member: &Value, now: Millis) -> [String; 3] {
    [cell(member, "entity_uri"), cell(member, "role"), moment_cell(member, "added_at", now)]
}

fn add(arguments: Add, out: &mut impl Write) -> anyhow::Result<()> {
    let Add { slug, entity, role, output, server } = arguments;
    let body = json!({ "entity_uri": entity, "role": role });
    let target = format!("{}/members", garden_path(&slug));
    post(server, &target, &body, ("members", "entity_uri", output), out)
}

fn remove(arguments: Remove, out: &mut impl Write) -> anyhow::Result<()> {
    let Remove { slug, entity, server } = arguments;
    let client = Client::new(server)?;
    let target = format!("{}/members/{}", garden_path(&slug), encode_segment(&entity));
    let request = ApiRequest::new(Method::DELETE, target);
    let answer = super::block_on(async { Ok(client.send(&request).await?) })?;
    match answer.status {
        StatusCode::NO_CONTENT => writeln!(out, "{entity} does not belong to {slug} any more")?,
        _ => return Err(client.refusal(&answer)),
    }
    Ok(())
}

fn garden_path(slug: &str) -> String {
    format!("{GARDENS}/{}", encode_segment(slug))
}
