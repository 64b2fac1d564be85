//! `reveille doc export`: a collection as lines of JSON.

use std::io::{self, IsTerminal as _, Write};

use clap::Args;
use reveille_core::document::path::CollectionPath;

use super::parse_collection;
use super::query::{FilterText, Pages, body_of, parse_filter};
use crate::client::{Client, Output, ServerArguments, block_on};

/// What `reveille doc export` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The collection, like rooms or rooms/r1/messages
    #[arg(value_name = "COLLECTION", value_parser = parse_collection)]
    collection: CollectionPath,
    /// Only documents of which this is true (repeatable)
    #[arg(long = "where", value_name = "FILTER", value_parser = parse_filter)]
    filters: Vec<FilterText>,
    /// What is left of deleted documents as well
    #[arg(long)]
    deleted: bool,
    /// How to print them: lines of JSON either way, and with json nothing else
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

pub(super) fn run(arguments: Arguments, out: &mut impl Write) -> anyhow::Result<()> {
    let Arguments { collection, filters, deleted, output, server } = arguments;
    let client = Client::new(server)?;
    let mut pages = Pages::new(&client, body_of(&collection, filters, deleted));
    // What is printed and progress would stand among each other.
    let shows_progress =
        output == Output::Human && io::stderr().is_terminal() && !io::stdout().is_terminal();
    let mut exported = 0_usize;
    block_on(async {
        while let Some(page) = pages.next().await? {
            for document in &page.documents {
                // As the server wrote it: on one line.
                writeln!(out, "{}", document.get())?;
            }
            // Whoever reads sees a page before the next one is asked for.
            out.flush()?;
            exported += page.documents.len();
            if shows_progress {
                eprint!("\r{exported} documents");
            }
        }
        anyhow::Ok(())
    })?;
    if shows_progress {
        eprintln!();
    }
    Ok(())
}
