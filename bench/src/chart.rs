//! The report as a chart: horizontal bars, one panel per cell, each with its own scale from zero.

use std::fmt::Write as _;

use crate::cell::{Cell, Direction};
use crate::number::number;
use crate::results::Results;
use crate::table::errors;

const WIDTH: f64 = 900.0;
const MARGIN: f64 = 24.0;
const LABEL_WIDTH: f64 = 270.0;
/// Room for the value behind the longest bar.
const VALUE_WIDTH: f64 = 190.0;
const BAR_WIDTH: f64 = WIDTH - 2.0 * MARGIN - LABEL_WIDTH - VALUE_WIDTH;
const BAR_HEIGHT: f64 = 18.0;
const BAR_STEP: f64 = 24.0;
const TITLE_HEIGHT: f64 = 30.0;
const PANEL_GAP: f64 = 22.0;
const HEAD_HEIGHT: f64 = 64.0;

struct Bar<'a> {
    label: &'a str,
    color: &'a str,
    value: f64,
    note: String,
}

pub(crate) fn svg(cells: &[Cell], results: &Results) -> String {
    let mut body = String::new();
    let mut top = HEAD_HEIGHT;
    for cell in cells {
        top += panel(cell, results, top, &mut body);
    }
    let machine = |name: &str| {
        let value = results.machine.get(name);
        value.and_then(|v| {
            v.as_str().map(str::to_owned).or_else(|| v.as_u64().map(|n| n.to_string()))
        })
    };
    let (cores, cpu) = (machine("cores"), machine("cpu"));
    let machine = format!(
        "Server and load generator share one machine: {} cores, {}. Medians; every append is on disk before it is answered.",
        cores.as_deref().unwrap_or("?"),
        cpu.as_deref().unwrap_or("unknown CPU"),
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" \
         height=\"{top}\" font-family=\"system-ui, sans-serif\" font-size=\"13\" fill=\"#212529\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{MARGIN}\" y=\"30\" font-size=\"18\" font-weight=\"600\">reveille and its peers</text>\n\
         <text x=\"{MARGIN}\" y=\"50\" font-size=\"12\" fill=\"#495057\">{}</text>\n{body}</svg>\n",
        escape(&machine)
    )
}

/// Draws one cell and returns the height it took: none when nobody was measured.
fn panel(cell: &Cell, results: &Results, top: f64, svg: &mut String) -> f64 {
    let Some(figure) = cell.main() else {
        return 0.0;
    };
    let mut bars = Vec::new();
    for (name, title, color) in &results.subjects {
        let Some(spread) = results.spread(cell.key, name, figure) else {
            continue;
        };
        let errors = errors(cell, name, results);
        let note = errors.map_or(String::new(), |e| format!(" ({} % errors)", number(e)));
        bars.push(Bar { label: title, color, value: spread.median, note });
    }
    let Some(longest) = bars.iter().map(|bar| bar.value).reduce(f64::max) else {
        return 0.0;
    };
    let better = match figure.better {
        Direction::Higher => "longer is better",
        Direction::Lower => "shorter is better",
    };
    line(
        svg,
        &format!(
            "<text x=\"{MARGIN}\" y=\"{:.1}\" font-size=\"14\" font-weight=\"600\">{}\
             <tspan dx=\"10\" font-weight=\"400\" font-size=\"12\" fill=\"#495057\">{}, {better}</tspan></text>",
            top + 18.0,
            escape(&cell.title),
            escape(figure.name),
        ),
    );
    let mut y = top + TITLE_HEIGHT;
    for bar in &bars {
        draw(bar, longest, figure.unit, y, svg);
        y += BAR_STEP;
    }
    y - top + PANEL_GAP
}

fn draw(bar: &Bar<'_>, longest: f64, unit: &str, y: f64, svg: &mut String) {
    let share = if longest > 0.0 { (bar.value / longest).clamp(0.0, 1.0) } else { 0.0 };
    // A bar too short to see would look like a missing one.
    let width = (share * BAR_WIDTH).max(1.5);
    let left = MARGIN + LABEL_WIDTH;
    let text_y = y + BAR_HEIGHT - 4.5;
    line(
        svg,
        &format!(
            "<text x=\"{:.1}\" y=\"{text_y:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            escape(bar.label)
        ),
    );
    line(
        svg,
        &format!(
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR_HEIGHT}\" \
             rx=\"2\" fill=\"{}\"/>",
            escape(bar.color)
        ),
    );
    let space = if unit.starts_with('/') { "" } else { " " };
    let value = format!("{}{space}{unit}{}", number(bar.value), bar.note);
    line(
        svg,
        &format!(
            "<text x=\"{:.1}\" y=\"{text_y:.1}\">{}</text>",
            left + width + 6.0,
            escape(&value)
        ),
    );
}

fn line(svg: &mut String, text: &str) {
    writeln!(svg, "{text}").expect("a string takes every line");
}

/// Text that may stand in an element or in a quoted attribute.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            // XML 1.0 has no way to write the other control characters.
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn what_would_end_an_element_or_an_attribute_is_escaped() {
        assert_eq!(escape("a<b>&\"c\"'d'\u{7}µ"), "a&lt;b&gt;&amp;&quot;c&quot;&apos;d&apos; µ");
        assert_eq!(escape("plain – text"), "plain – text");
    }

    #[test]
    fn the_longest_bar_fills_the_panel_and_the_others_are_in_proportion() {
        let (cells, results) = results(&[
            ("reveille", 40_000.0, 0.0),
            ("durable-streams", 10_000.0, 0.0),
            ("npm", 1.0, 0.8),
        ]);
        let svg = svg(&cells[..1], &results);
        assert!(svg.contains(&format!("width=\"{BAR_WIDTH:.1}\"")), "{svg}");
        assert!(svg.contains(&format!("width=\"{:.1}\"", BAR_WIDTH / 4.0)), "{svg}");
        assert!(svg.contains("width=\"1.5\""), "{svg}");
        assert!(svg.contains("40,000/s<"), "{svg}");
        assert!(svg.contains("1.00/s (80.0 % errors)<"), "{svg}");
        assert!(svg.contains("A &amp; B &lt;fast&gt;"), "{svg}");
    }

    #[test]
    fn cells_without_figures_take_no_room() {
        let (cells, results) = results(&[]);
        let empty = svg(&cells, &results);
        assert!(empty.contains(&format!("viewBox=\"0 0 900 {HEAD_HEIGHT}\"")), "{empty}");
        assert!(!empty.contains("<rect x"), "{empty}");
    }
}
