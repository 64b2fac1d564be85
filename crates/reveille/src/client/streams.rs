//! `reveille streams`: the streams of a server, page by page.

use std::io::{self, BufWriter, Write};

use anyhow::{Context as _, anyhow};
use clap::Args;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::url::encode;
use super::{ApiRequest, Client, Output, ServerArguments};

const PAGE: usize = 1_000;
/// A column grows with what stands in it up to here; longer paths stick out.
const PATH_WIDTH_MAX: usize = 60;

/// What `reveille streams` takes.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only streams whose path begins with this
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: String,
    /// How to print them
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Deserialize)]
struct Page {
    /// As the server wrote them: what it says is passed on, also what this program does not know.
    streams: Vec<Box<RawValue>>,
    next: Option<String>,
}

/// What the table shows of a stream.
#[derive(Debug, Deserialize)]
struct StreamItem {
    path: String,
    content_type: String,
    next_offset: String,
    closed: bool,
}

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let client = Client::new(arguments.server)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let list = super::block_on(async {
        let mut list = ListPrinter { output: arguments.output, printed: 0 };
        let mut after = None;
        loop {
            let page = fetch_page(&client, &arguments.prefix, after.as_deref()).await?;
            list.print(&page.streams, &mut out)?;
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(list),
            }
        }
    })?;
    list.finish(&mut out)?;
    out.flush()?;
    Ok(())
}

async fn fetch_page(client: &Client, prefix: &str, after: Option<&str>) -> anyhow::Result<Page> {
    let mut target = format!("/admin/v1/streams?prefix={}&limit={PAGE}", encode(prefix));
    if let Some(after) = after {
        target.push_str(&format!("&after={}", encode(after)));
    }
    let answer = client.send(&ApiRequest::new(Method::GET, target)).await?;
    match answer.status {
        StatusCode::OK => serde_json::from_slice(&answer.body)
            .context("the answer is not a list of streams; see whether --url is a reveille server"),
        StatusCode::NOT_FOUND => {
            Err(anyhow!("the server does not list streams; see whether --url is a reveille server"))
        }
        _ => Err(client.refusal(&answer)),
    }
}

/// Prints a list page by page.
struct ListPrinter {
    output: Output,
    printed: usize,
}

impl ListPrinter {
    fn print(&mut self, streams: &[Box<RawValue>], out: &mut impl Write) -> anyhow::Result<()> {
        match self.output {
            Output::Json => {
                for stream in streams {
                    out.write_all(if self.printed == 0 { b"[\n" } else { b",\n" })?;
                    out.write_all(stream.get().as_bytes())?;
                    self.printed += 1;
                }
            }
            Output::Human => {
                let items = streams.iter().map(|stream| serde_json::from_str(stream.get()));
                let items: Vec<StreamItem> = items
                    .collect::<Result<_, _>>()
                    .context("the server lists streams in a way that this program does not know")?;
                if self.printed == 0 && !items.is_empty() {
                    let widths = ColumnWidths::of(&items);
                    widths.row(out, ["PATH", "NEXT OFFSET", "STATE", "CONTENT TYPE"])?;
                }
                self.printed += items.len();
                print_table(&items, out)?;
            }
        }
        Ok(())
    }

    fn finish(self, out: &mut impl Write) -> io::Result<()> {
        match (self.output, self.printed) {
            (Output::Json, 0) => out.write_all(b"[]\n"),
            (Output::Json, _) => out.write_all(b"\n]\n"),
            (Output::Human, 0) => {
                eprintln!("there are no such streams");
                Ok(())
            }
            (Output::Human, _) => Ok(()),
        }
    }
}

/// The width of the columns before the last; a page has its own.
struct ColumnWidths {
    path: usize,
    offset: usize,
}

impl ColumnWidths {
    fn of(items: &[StreamItem]) -> ColumnWidths {
        let widest = |texts: &mut dyn Iterator<Item = &String>, least: usize| {
            texts.map(String::len).max().unwrap_or(0).max(least)
        };
        let path = widest(&mut items.iter().map(|item| &item.path), "PATH".len());
        let offsets = &mut items.iter().map(|item| &item.next_offset);
        ColumnWidths {
            path: path.min(PATH_WIDTH_MAX),
            offset: widest(offsets, "NEXT OFFSET".len()),
        }
    }

    fn row(&self, out: &mut impl Write, row: [&str; 4]) -> io::Result<()> {
        let [path, offset, state, kind] = row;
        let ColumnWidths { path: first, offset: second } = self;
        writeln!(out, "{path:first$}  {offset:second$}  {state:6}  {kind}")
    }
}

fn print_table(items: &[StreamItem], out: &mut impl Write) -> io::Result<()> {
    let widths = ColumnWidths::of(items);
    for item in items {
        let state = if item.closed { "closed" } else { "open" };
        widths.row(out, [&item.path, &item.next_offset, state, &item.content_type])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(path: &str, closed: bool) -> Box<RawValue> {
        let item = format!(
            r#"{{"path":"{path}","content_type":"text/plain","next_offset":"0_7","closed":{closed},"new":1}}"#
        );
        RawValue::from_string(item).unwrap()
    }

    fn printed(output: Output, pages: &[Vec<Box<RawValue>>]) -> String {
        let mut out = Vec::new();
        let mut list = ListPrinter { output, printed: 0 };
        for page in pages {
            list.print(page, &mut out).unwrap();
        }
        list.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn people_get_a_table() {
        let pages = [vec![raw("/a", false), raw("/bcdef", true)], vec![raw("/g", false)]];
        let expected = "\
PATH    NEXT OFFSET  STATE   CONTENT TYPE
/a      0_7          open    text/plain
/bcdef  0_7          closed  text/plain
/g    0_7          open    text/plain
";
        assert_eq!(printed(Output::Human, &pages), expected);
        assert_eq!(printed(Output::Human, &[vec![]]), "");
    }

    #[test]
    fn programs_get_one_array_of_what_the_server_said() {
        let pages = [vec![raw("/a", false)], vec![raw("/b", true)], vec![]];
        let text = printed(Output::Json, &pages);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value[0]["path"], "/a");
        assert_eq!(value[1]["new"], 1);
        assert_eq!(value.as_array().unwrap().len(), 2);
        assert_eq!(printed(Output::Json, &[vec![]]), "[]\n");
    }
}
