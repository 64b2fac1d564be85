//! `reveille streams`: the streams of a server, page by page.

use std::io::{self, BufWriter, Write as _};

use clap::Args;
use reveille_core::Millis;
use serde_json::Value;

use super::Client;
use super::list::{ListArguments, print_list};
use super::table::{ListPrinter, cell};
use super::url::encode;

const PAGE: usize = 1_000;

/// What `reveille streams` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only streams whose path begins with this
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
    #[command(flatten)]
    list: ListArguments,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let client = Client::new(arguments.list.server)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let head = ["PATH", "NEXT OFFSET", "STATE", "CONTENT TYPE"];
    let mut list = ListPrinter::new(arguments.list.output, head, row);
    let target = format!("/admin/v1/streams?prefix={}&limit={PAGE}", encode(&arguments.prefix));
    super::block_on(print_list(&client, &target, "streams", |_| true, &mut list, &mut out))?;
    list.finish("there are no such streams", &mut out)?;
    out.flush()?;
    Ok(())
}

fn row(stream: &Value, _: Millis) -> [String; 4] {
    let is_closed = stream.get("closed").and_then(Value::as_bool) == Some(true);
    let state = if is_closed { "closed" } else { "open" };
    [
        cell(stream, "path"),
        cell(stream, "next_offset"),
        state.to_owned(),
        cell(stream, "content_type"),
    ]
}
