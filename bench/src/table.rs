//! The report as Markdown.

use std::fmt::Write as _;

use serde_json::Value;

use crate::alone;
use crate::cell::{self, Cell, Direction};
use crate::goal;
use crate::number::number;
use crate::options::Work;
use crate::results::Results;

/// More than this share of errors is marked in the overview.
const ERRORS_SHOWN_PERCENT: f64 = 0.1;

pub(crate) fn markdown(cells: &[Cell], results: &Results) -> String {
    let mut text = "# Benchmark\n\n".to_owned();
    machine(results, &mut text);
    overview(cells, results, &mut text);
    goals(cells, results, &mut text);
    for cell in cells {
        details(cell, results, &mut text);
    }
    for work in &alone::ALL {
        match results.alone.get(&work.work) {
            Some(result) if work.work == Work::Soak => soak(result, &mut text),
            Some(result) => figures(work.title, result, &mut text),
            None => {}
        }
    }
    if !results.failures.is_empty() {
        push(&mut text, "## Failed runs\n");
        for failure in &results.failures {
            push(&mut text, &format!("- {}", failure.replace('\n', " ")));
        }
    }
    text
}

fn push(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string takes every line");
}

fn machine(results: &Results, text: &mut String) {
    for (name, value) in results.machine.as_object().into_iter().flatten() {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        push(text, &format!("- {}: {value}", name.replace('_', " ")));
    }
    if let Some(others) = results.everywhere(&cell::OTHERS) {
        let (median, max) = (number(others.median), number(others.max));
        push(text, &format!("- cores busy with anything else: median {median}, at worst {max}"));
    }
    text.push('\n');
}

/// One line per cell: the main figure of everyone, and the ratios.
fn overview(cells: &[Cell], results: &Results, text: &mut String) {
    if cells.is_empty() {
        return;
    }
    let peers = results.peers();
    let mut head = vec!["".to_owned(), "unit".to_owned()];
    head.extend(results.subjects.iter().map(|s| s.1.to_owned()));
    head.extend(peers.iter().map(|peer| format!("reveille / {peer}")));
    row(&head, text);
    row(&vec!["---".to_owned(); head.len()], text);
    for cell in cells {
        let Some(figure) = cell.main() else { continue };
        let arrow = match figure.better {
            Direction::Higher => "more is better",
            Direction::Lower => "less is better",
        };
        let mut columns = vec![cell.title.clone(), format!("{}, {arrow}", figure.name)];
        for (name, ..) in &results.subjects {
            columns.push(main_figure(cell, name, results));
        }
        for peer in &peers {
            let ratio = results.ratio(cell, peer);
            columns.push(ratio.map_or("–".to_owned(), |ratio| format!("{} x", number(ratio))));
        }
        row(&columns, text);
    }
    push(text, "\nMedians of the rounds, in brackets the least and the most.\n");
}

fn main_figure(cell: &Cell, subject: &str, results: &Results) -> String {
    let spread = cell.main().and_then(|figure| results.spread(cell.key, subject, figure));
    let Some(spread) = spread else {
        return "–".to_owned();
    };
    let mut shown = number(spread.median);
    if spread.min < spread.max {
        shown += &format!(" ({}–{})", number(spread.min), number(spread.max));
    }
    if let Some(percent) = errors(cell, subject, results) {
        shown += &format!(", **{} % errors**", number(percent));
    }
    shown
}

/// The errors of a subject in a cell, in percent, if there are too many to leave unsaid.
pub(crate) fn errors(cell: &Cell, subject: &str, results: &Results) -> Option<f64> {
    let errors = results.spread(cell.key, subject, &cell::ERRORS)?;
    (errors.max > ERRORS_SHOWN_PERCENT).then_some(errors.max)
}

fn goals(cells: &[Cell], results: &Results, text: &mut String) {
    let verdicts = goal::verdicts(cells, results);
    if verdicts.is_empty() {
        return;
    }
    push(text, "## Goals\n");
    for verdict in verdicts {
        let met = if verdict.is_met { "met" } else { "**missed**" };
        push(text, &format!("- {met}: {} (found {})", verdict.text, verdict.found));
    }
    text.push('\n');
}

fn details(cell: &Cell, results: &Results, text: &mut String) {
    push(text, &format!("## {}\n", cell.title));
    let mut head = vec![String::new()];
    head.extend(cell.figures.iter().map(|figure| figure.name.to_owned()));
    row(&head, text);
    row(&vec!["---".to_owned(); head.len()], text);
    for (name, title, _) in &results.subjects {
        let mut columns = vec![(*title).to_owned()];
        columns.extend(cell.figures.iter().map(|figure| {
            let spread = results.spread(cell.key, name, figure);
            spread.map_or("–".to_owned(), |spread| number(spread.median))
        }));
        row(&columns, text);
    }
    text.push('\n');
}

fn figures(title: &str, result: &Value, text: &mut String) {
    push(text, &format!("## {title}, reveille alone\n"));
    for (name, value) in result.as_object().into_iter().flatten() {
        let value = value.as_f64().map_or_else(|| value.to_string(), number);
        push(text, &format!("- {}: {value}", name.replace('_', " ")));
    }
    text.push('\n');
}

fn soak(result: &Value, text: &mut String) {
    push(text, "## Soak, reveille alone\n");
    let seconds = result.pointer("/report/seconds").and_then(Value::as_f64).unwrap_or(0.0);
    let rate = result.pointer("/report/per_second").and_then(Value::as_f64).unwrap_or(0.0);
    push(text, &format!("{} s at {} appends/s.\n", number(seconds), number(rate)));
    row(&["", "start", "end", "level"].map(str::to_owned), text);
    row(&vec!["---".to_owned(); 4], text);
    for (name, level) in result.get("level").and_then(Value::as_object).into_iter().flatten() {
        let (unit, scale) = match name.as_str() {
            "rate" => ("appends/s", 1.0),
            "p99" => ("ms", 1e-3),
            _ => ("MB", 1e-6),
        };
        let shown = |side: &str| {
            let value = level.get(side).and_then(Value::as_f64);
            value.map_or("–".to_owned(), |value| number(value * scale))
        };
        let held = match level.get("level").and_then(Value::as_bool) {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "not measured",
        };
        row(&[format!("{name}, {unit}"), shown("start"), shown("end"), held.to_owned()], text);
    }
    text.push('\n');
}

fn row(columns: &[String], text: &mut String) {
    push(text, &format!("| {} |", columns.join(" | ")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn the_overview_has_figures_ratios_and_errors() {
        let (cells, results) = results(&[
            ("reveille", 29_000.0, 0.0),
            ("reveille", 31_000.0, 0.0),
            ("durable-streams", 20_000.0, 0.0),
            ("npm", 100.0, 0.85),
        ]);
        let text = markdown(&cells[..1], &results);
        assert!(text.contains("- cores: 2\n"), "{text}");
        assert!(text.contains("| 30,000 (29,000–31,000) | 20,000 |"), "{text}");
        assert!(text.contains("| 100, **85.0 % errors** |"), "{text}");
        assert!(text.contains("| 1.50 x | 300 x |"), "{text}");
    }
}
