//! Lists, which servers give page by page: asked for to the end, printed as they come.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Context as _, bail};
use clap::Args;
use http::{Method, StatusCode};
use serde_json::Value;
use serde_json::value::RawValue;

use super::table::{Item, ListPrinter};
use super::url::encode;
use super::{ApiRequest, Client, Output, ServerArguments, unexpected_answer};

/// Where a list is, and how it is printed.
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// How to print them
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// What is meant of a list, and how it is printed.
#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// Its id, as the list shows it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) server: ServerArguments,
}

/// A part of a list.
pub(crate) struct Page {
    pub(crate) items: Vec<Item>,
    /// Where the next part begins, if there is one.
    pub(crate) next: Option<String>,
}

/// Asks for one page, whose items are in the field `name`.
pub(crate) async fn fetch_page(client: &Client, target: &str, name: &str) -> anyhow::Result<Page> {
    let answer = client.send(&ApiRequest::new(Method::GET, target)).await?;
    if answer.status != StatusCode::OK {
        return Err(client.refusal(&answer));
    }
    let unexpected = || unexpected_answer(name);
    let mut body: BTreeMap<String, Box<RawValue>> =
        serde_json::from_slice(&answer.body).with_context(unexpected)?;
    let items = body.remove(name).with_context(unexpected)?;
    let items: Vec<Box<RawValue>> = serde_json::from_str(items.get()).with_context(unexpected)?;
    let items: Result<_, _> = items.into_iter().map(Item::parse).collect();
    let next = body.remove("next").and_then(|next| serde_json::from_str(next.get()).ok()?);
    Ok(Page { items: items.with_context(unexpected)?, next })
}

/// Prints what is wanted of a list. `target` has a query, to which the place of a page is added.
pub(crate) async fn print_list<const N: usize>(
    client: &Client,
    target: &str,
    name: &str,
    is_wanted: impl Fn(&Value) -> bool,
    printer: &mut ListPrinter<N>,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut after: Option<String> = None;
    loop {
        let place = after.as_deref().map(|after| format!("&after={}", encode(after)));
        let page = format!("{target}{}", place.unwrap_or_default());
        let Page { mut items, next } = fetch_page(client, &page, name).await?;
        items.retain(|item| is_wanted(&item.fields));
        printer.print(&items, out)?;
        if next.is_none() {
            return Ok(());
        }
        if next == after {
            bail!("the server does not get beyond a page of {name}; see its log");
        }
        after = next;
    }
}
