//! `reveille doc query`, and the pages that it and an export walk over.

use std::io::Write;

use anyhow::{Context as _, bail};
use clap::Args;
use http::{Method, StatusCode};
use reveille_core::Millis;
use reveille_core::document::filter::Filter;
use reveille_core::document::order::Direction;
use reveille_core::document::path::CollectionPath;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{API, parse_collection};
use crate::client::table::{Item, ListPrinter, cell, moment_cell};
use crate::client::{ApiRequest, Client, Output, ServerArguments, human, unexpected_answer};

/// What `reveille doc query` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The collection, like rooms or rooms/r1/messages
    #[arg(value_name = "COLLECTION", value_parser = parse_collection)]
    collection: CollectionPath,
    /// Only documents of which this is true (repeatable)
    #[arg(long = "where", value_name = "FILTER", value_parser = parse_filter)]
    filters: Vec<FilterText>,
    /// Sorts by this field, FIELD or FIELD:desc (repeatable) [default: by id]
    #[arg(long = "order", value_name = "FIELD", value_parser = parse_order)]
    orders: Vec<OrderText>,
    /// At most so many documents [default: all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// What is left of deleted documents as well
    #[arg(long)]
    deleted: bool,
    /// Says on standard error what the first page has cost
    #[arg(long)]
    explain: bool,
    /// How to print them
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// A filter as a query has it.
#[derive(Debug, Clone)]
pub(super) struct FilterText(Value);

#[derive(Debug, Clone)]
struct OrderText(Value);

/// Reads `FIELD OP VALUE`.
pub(super) fn parse_filter(text: &str) -> Result<FilterText, String> {
    let mut parts = text.trim().splitn(2, char::is_whitespace);
    let field = parts.next().unwrap_or_default();
    let rest = parts.next().unwrap_or_default().trim_start();
    let Some((op, value)) = rest.split_once(char::is_whitespace) else {
        return Err("write a field, an operator and a value, like 'seats >= 4'".to_owned());
    };
    let value = value.trim();
    let value: Value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    Filter::new(field, op, value.clone()).map_err(|error| error.to_string())?;
    Ok(FilterText(json!({ "field": field, "op": op, "value": value })))
}

/// Reads `FIELD` or `FIELD:desc`.
fn parse_order(text: &str) -> Result<OrderText, String> {
    let (field, direction) = text.split_once(':').unwrap_or((text, "asc"));
    let direction = Direction::parse(direction).map_err(|error| error.to_string())?;
    Ok(OrderText(json!({ "field": field, "direction": direction.as_str() })))
}

/// The body of a query for all documents of a collection that match.
pub(super) fn body_of(
    collection: &CollectionPath,
    filters: Vec<FilterText>,
    deleted: bool,
) -> Map<String, Value> {
    let mut body = Map::new();
    body.insert("collection".to_owned(), collection.as_str().into());
    body.insert("filters".to_owned(), filters_of(filters));
    body.insert("showDeleted".to_owned(), deleted.into());
    body
}

/// Filters as a list.
pub(super) fn filters_of(filters: Vec<FilterText>) -> Value {
    filters.into_iter().map(|FilterText(filter)| filter).collect()
}

/// A page of documents.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    pub(super) documents: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
    explain: Option<Value>,
}

/// The pages of a query, one after another.
pub(super) struct Pages<'c> {
    client: &'c Client,
    body: Map<String, Value>,
    is_done: bool,
}

impl Pages<'_> {
    pub(super) fn new(client: &Client, body: Map<String, Value>) -> Pages<'_> {
        Pages { client, body, is_done: false }
    }

    /// The next page, if there is one. A page that was lost on its way is asked for again.
    pub(super) async fn next(&mut self) -> anyhow::Result<Option<Page>> {
        if self.is_done {
            return Ok(None);
        }
        let mut request = ApiRequest::new(Method::POST, format!("{API}/query"));
        request.body = serde_json::to_vec(&self.body)?.into();
        let answer = self.client.send(&request).await?;
        if answer.status != StatusCode::OK {
            return Err(self.client.refusal(&answer));
        }
        let page: Page =
            serde_json::from_slice(&answer.body).with_context(|| unexpected_answer("documents"))?;
        match &page.next_cursor {
            None => self.is_done = true,
            Some(next) => {
                let before = self.body.insert("startAfter".to_owned(), next.as_str().into());
                if before.is_some_and(|before| before.as_str() == Some(next)) {
                    bail!("the server does not get beyond a page of documents; see its log");
                }
            }
        }
        Ok(Some(page))
    }
}

pub(super) fn run(arguments: Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { collection, filters, orders, limit, deleted, explain, output, server } =
        arguments;
    let client = Client::new(server)?;
    let mut body = body_of(&collection, filters, deleted);
    let orders: Vec<Value> = orders.into_iter().map(|OrderText(order)| order).collect();
    body.insert("orderBy".to_owned(), orders.into());
    body.insert("explain".to_owned(), explain.into());
    let mut pages = Pages::new(&client, body);
    let head = ["ID", "VERSION", "UPDATED", "DOCUMENT"];
    let mut list = ListPrinter::new(output, head, row);
    let mut left = limit.unwrap_or(usize::MAX);
    let mut is_first = true;
    super::super::block_on(async {
        while left > 0
            && let Some(page) = pages.next().await?
        {
            if let Some(cost) = page.explain.filter(|_| std::mem::take(&mut is_first)) {
                eprintln!("{cost:#}");
            }
            let items = page.documents.into_iter().take(left).map(Item::parse);
            let items = items.collect::<Result<Vec<_>, _>>()?;
            left -= items.len();
            list.print(&items, out)?;
        }
        anyhow::Ok(())
    })?;
    list.finish("there are no such documents", out)?;
    Ok(())
}

/// The fields of a document that are not its own.
pub(super) fn data_of(document: &Map<String, Value>) -> Map<String, Value> {
    let own = ["id", "collection", "version", "createdAt", "updatedAt"];
    let data = document.iter().filter(|(name, _)| !own.contains(&name.as_str()));
    data.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn row(document: &Value, now: Millis) -> [String; 4] {
    let data = document.as_object().map(data_of).unwrap_or_default();
    [
        cell(document, "id"),
        cell(document, "version"),
        moment_cell(document, "updatedAt", now),
        human::shorten(&Value::Object(data).to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_three_words_and_its_value_json_or_text() {
        let check = |text: &str, expected: Value| {
            assert_eq!(parse_filter(text).unwrap().0, expected, "{text}");
        };
        check("seats >= 4", json!({"field": "seats", "op": ">=", "value": 4}));
        check("a.b  ==  two words", json!({"field": "a.b", "op": "==", "value": "two words"}));
        check("a == \"4\"", json!({"field": "a", "op": "==", "value": "4"}));
        check("a in [1, \"b\"]", json!({"field": "a", "op": "in", "value": [1, "b"]}));
        check("a == null", json!({"field": "a", "op": "==", "value": null}));
        for wrong in ["", "a", "a ==", "a = 4", "a in 4"] {
            assert!(parse_filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_order_has_a_direction() {
        let check =
            |text: &str, expected: Value| assert_eq!(parse_order(text).unwrap().0, expected);
        check("seats", json!({"field": "seats", "direction": "asc"}));
        check("seats:desc", json!({"field": "seats", "direction": "desc"}));
        assert!(parse_order("seats:down").is_err());
    }
}
