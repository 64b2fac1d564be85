//! How answers are printed: tables and fields for people, JSON for programs.

use std::io::{self, Write};

use reveille_core::Millis;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Output, human};
use crate::clock;

/// A column grows with what stands in it up to here; longer texts stick out.
const WIDTH_MAX: usize = 60;

/// Rows under one head. They may come page by page: a column never gets narrower.
pub(crate) struct Table<const N: usize> {
    head: [&'static str; N],
    widths: [usize; N],
    has_head: bool,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(head: [&'static str; N]) -> Table<N> {
        Table { head, widths: head.map(str::len), has_head: false }
    }

    /// Prints rows; the head stands above the first ones.
    pub(crate) fn print(&mut self, rows: Vec<[String; N]>, out: &mut impl Write) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut rows: Vec<[String; N]> = rows.into_iter().map(|row| row.map(printable)).collect();
        if !self.has_head {
            self.has_head = true;
            rows.insert(0, self.head.map(str::to_owned));
        }
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.chars().count().min(WIDTH_MAX).max(*width);
            }
        }
        for row in &rows {
            let cells = row.iter().zip(self.widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// One thing of a list: as the server wrote it, and read. What this program does not know is
/// passed on too.
#[derive(Debug)]
pub(crate) struct Item {
    raw: Box<RawValue>,
    pub(crate) fields: Value,
}

impl Item {
    pub(crate) fn parse(raw: Box<RawValue>) -> serde_json::Result<Item> {
        Ok(Item { fields: serde_json::from_str(raw.get())?, raw })
    }

    #[cfg(test)]
    fn new(fields: Value) -> serde_json::Result<Item> {
        Ok(Item { raw: serde_json::value::to_raw_value(&fields)?, fields })
    }
}

/// What a row shows of a thing, at this moment.
pub(crate) type RowOf<const N: usize> = fn(&Value, Millis) -> [String; N];

/// Prints a list page by page.
pub(crate) struct ListPrinter<const N: usize> {
    output: Output,
    table: Table<N>,
    row: RowOf<N>,
    printed: usize,
}

impl<const N: usize> ListPrinter<N> {
    pub(crate) fn new(output: Output, head: [&'static str; N], row: RowOf<N>) -> ListPrinter<N> {
        ListPrinter { output, table: Table::new(head), row, printed: 0 }
    }

    /// Prints a page, and lets it be seen before the next one is asked for.
    pub(crate) fn print(&mut self, items: &[Item], out: &mut impl Write) -> io::Result<()> {
        match self.output {
            Output::Json => {
                for item in items {
                    out.write_all(if self.printed == 0 { b"[\n" } else { b",\n" })?;
                    out.write_all(item.raw.get().as_bytes())?;
                    self.printed += 1;
                }
            }
            Output::Human => {
                let now = clock::now();
                self.printed += items.len();
                let rows = items.iter().map(|item| (self.row)(&item.fields, now)).collect();
                self.table.print(rows, out)?;
            }
        }
        out.flush()
    }

    /// Ends the list; people are told if there was nothing in it.
    pub(crate) fn finish(self, nothing: &str, out: &mut impl Write) -> io::Result<()> {
        match (self.output, self.printed) {
            (Output::Json, 0) => out.write_all(b"[]\n"),
            (Output::Json, _) => out.write_all(b"\n]\n"),
            (Output::Human, 0) => {
                eprintln!("{nothing}");
                Ok(())
            }
            (Output::Human, _) => Ok(()),
        }
    }
}

/// Prints what the server says of one thing, a line for each field that has a value: `first`, and
/// the rest as the server orders them.
pub(crate) fn print_fields(
    fields: &Map<String, Value>,
    first: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let now = clock::now();
    let fields = || fields.iter().filter(|(_, value)| !value.is_null());
    let width = fields().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let (first, rest): (Vec<_>, Vec<_>) = fields().partition(|(name, _)| *name == first);
    for (name, value) in first.into_iter().chain(rest) {
        writeln!(out, "{name:width$}  {}", printable(field_text(name, value, now)))?;
    }
    Ok(())
}

/// A moment is told by its distance as well; everything else as it is.
fn field_text(name: &str, value: &Value, now: Millis) -> String {
    let ends = ["_at", "_since", "_until", "At", "Since", "Until"];
    let is_moment = ends.iter().any(|end| name.ends_with(end)) || name == "at";
    match moment_of(value) {
        Some(then) if is_moment => {
            format!("{} ({})", human::moment(now, then), then.to_rfc3339())
        }
        _ => cell_text(value),
    }
}

/// A moment, as servers write it: in milliseconds, or as a date.
fn moment_of(value: &Value) -> Option<Millis> {
    let date = || value.as_str().and_then(Millis::parse_rfc3339);
    value.as_u64().map(Millis).or_else(date)
}

/// A field as a cell; nothing if it is not there.
pub(crate) fn cell(item: &Value, name: &str) -> String {
    item.get(name).map(cell_text).unwrap_or_default()
}

/// A field with a moment as a cell.
pub(crate) fn moment_cell(item: &Value, name: &str, now: Millis) -> String {
    let then = item.get(name).and_then(moment_of);
    then.map(|then| human::moment(now, then)).unwrap_or_default()
}

pub(crate) fn cell_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(|item| !item.is_object()) => {
            items.iter().map(cell_text).collect::<Vec<_>>().join(",")
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// What others wrote neither ends a line nor commands a terminal.
fn printable(text: String) -> String {
    if text.chars().any(char::is_control) {
        return text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(item: &Value, _: Millis) -> [String; 2] {
        [cell(item, "name"), cell(item, "roles")]
    }

    fn printed(output: Output, pages: &[Vec<Value>]) -> String {
        let mut out = Vec::new();
        let mut list = ListPrinter::new(output, ["NAME", "ROLES"], row);
        for page in pages {
            let page: Vec<Item> = page.iter().map(|it| Item::new(it.clone()).unwrap()).collect();
            list.print(&page, &mut out).unwrap();
        }
        list.finish("there are none", &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn people_get_a_table_whose_columns_never_shrink() {
        let pages = [
            vec![json!({ "name": "a", "roles": ["x", "y"] }), json!({ "name": "longer" })],
            vec![json!({ "name": "é", "roles": null, "more": 1 }), json!({ "name": "b\u{1b}[2J" })],
        ];
        let expected = "\
NAME    ROLES
a       x,y
longer
é
b [2J
";
        assert_eq!(printed(Output::Human, &pages), expected);
        assert_eq!(printed(Output::Human, &[vec![]]), "");
    }

    #[test]
    fn long_cells_stick_out() {
        let long = "x".repeat(WIDTH_MAX + 5);
        let pages = [vec![json!({ "name": long, "roles": 1 }), json!({ "name": "a", "roles": 2 })]];
        let text = printed(Output::Human, &pages);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("{long}  1"));
        assert_eq!(lines[2], format!("a{}  2", " ".repeat(WIDTH_MAX - 1)));
    }

    #[test]
    fn programs_get_one_array_of_what_the_server_said() {
        let pages = [vec![json!({ "name": "a" })], vec![json!({ "name": "b", "new": 1 })], vec![]];
        let value: Value = serde_json::from_str(&printed(Output::Json, &pages)).unwrap();
        assert_eq!(value, json!([{ "name": "a" }, { "name": "b", "new": 1 }]));
        assert_eq!(printed(Output::Json, &[vec![]]), "[]\n");
    }

    #[test]
    fn fields_have_a_line_each_and_moments_a_distance() {
        let value = json!({ "a": 1, "id": "x", "created_at": 0, "empty": null, "createdAt": 86_400_000,
                    "since": "never", "validUntil": "1970-01-03T00:00:00Z" });
        let mut out = Vec::new();
        print_fields(value.as_object().unwrap(), "id", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "id          x");
        assert_eq!(lines[1], "a           1");
        assert!(lines[2].ends_with("d ago (1970-01-02T00:00:00.000Z)"), "{text}");
        assert!(lines[3].ends_with("d ago (1970-01-01T00:00:00.000Z)"), "{text}");
        assert_eq!(lines[4], "since       never");
        assert!(lines[5].ends_with("d ago (1970-01-03T00:00:00.000Z)"), "{text}");
        assert_eq!(lines.len(), 6);
    }
}
