//! What was measured, and its medians.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cell::{Cell, Figure};
use crate::number::number;
use crate::options::Work;
use crate::subject::{self, Subject};

pub(crate) struct Results {
    /// In the order of the report.
    pub(crate) subjects: Vec<(&'static str, &'static str, &'static str)>,
    pub(crate) machine: Value,
    /// The generator's reports, one per round, by cell and subject.
    reports: BTreeMap<(&'static str, &'static str), Vec<Value>>,
    pub(crate) failures: Vec<String>,
    /// Of what only reveille is measured at.
    pub(crate) alone: BTreeMap<Work, Value>,
}

/// A figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Results {
    pub(crate) fn new(subjects: &[&Subject], machine: Value) -> Results {
        Results {
            subjects: subjects.iter().map(|s| (s.name, s.title, s.color)).collect(),
            machine,
            reports: BTreeMap::new(),
            failures: Vec::new(),
            alone: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, cell: &Cell, subject: &Subject, report: Value) {
        if let Some((figure, value)) = cell.main().and_then(|f| Some((f, f.of(&report)?))) {
            eprintln!("  {} {}", number(value), figure.name);
        }
        if let Some(warning) = report.get("warning").and_then(Value::as_str) {
            eprintln!("  WARNING: {warning}");
        }
        self.reports.entry((cell.key, subject.name)).or_default().push(report);
    }

    pub(crate) fn fail(&mut self, what: &str, error: &anyhow::Error) {
        let text = format!("{what}: {error:#}");
        eprintln!("  FAILED: {text}");
        self.failures.push(text);
    }

    /// The result of what only reveille is measured at, or a failure.
    pub(crate) fn record(&mut self, work: Work, result: anyhow::Result<Value>) {
        match result {
            Ok(result) => drop(self.alone.insert(work, result)),
            Err(error) => self.fail(&work.name(), &error),
        }
    }

    /// The subjects that reveille is compared with: none when it was not measured.
    pub(crate) fn peers(&self) -> Vec<&'static str> {
        let names: Vec<&str> = self.subjects.iter().map(|subject| subject.0).collect();
        if !names.contains(&subject::REVEILLE) {
            return Vec::new();
        }
        names.into_iter().filter(|name| *name != subject::REVEILLE).collect()
    }

    /// `None` when the subject took no part or never gave the figure.
    pub(crate) fn spread(&self, cell: &str, subject: &str, figure: &Figure) -> Option<Spread> {
        let reports = self.reports.iter().find(|((c, s), _)| *c == cell && *s == subject)?.1;
        spread(reports.iter().filter_map(|report| figure.of(report)).collect())
    }

    /// Ours over theirs, of the cell's main figure.
    pub(crate) fn ratio(&self, cell: &Cell, peer: &str) -> Option<f64> {
        self.ratio_of(cell, peer, cell.main()?)
    }

    /// Ours over theirs, of some figure of the cell.
    pub(crate) fn ratio_of(&self, cell: &Cell, peer: &str, figure: &Figure) -> Option<f64> {
        let theirs = self.spread(cell.key, peer, figure)?.median;
        (theirs > 0.0).then_some(self.ours(cell, figure)? / theirs)
    }

    /// The median of ours.
    pub(crate) fn ours(&self, cell: &Cell, figure: &Figure) -> Option<f64> {
        Some(self.spread(cell.key, subject::REVEILLE, figure)?.median)
    }

    /// The figure in every run, whoever was measured.
    pub(crate) fn everywhere(&self, figure: &Figure) -> Option<Spread> {
        spread(self.reports.values().flatten().filter_map(|report| figure.of(report)).collect())
    }

    pub(crate) fn json(&self, cells: &[Cell]) -> Value {
        let cells: Vec<Value> = cells.iter().map(|cell| self.cell_json(cell)).collect();
        let alone = self.alone.iter().map(|(work, result)| (work.name(), result.clone()));
        let mut all: serde_json::Map<String, Value> = alone.collect();
        all.insert("machine".to_owned(), self.machine.clone());
        all.insert("cells".to_owned(), cells.into());
        all.insert("failures".to_owned(), json!(self.failures));
        all.into()
    }

    fn cell_json(&self, cell: &Cell) -> Value {
        let mut subjects = serde_json::Map::new();
        for (name, ..) in &self.subjects {
            let medians: serde_json::Map<String, Value> = cell
                .figures
                .iter()
                .filter_map(|figure| {
                    let spread = self.spread(cell.key, name, figure)?;
                    Some((figure.name.to_owned(), json!(spread.median)))
                })
                .collect();
            let rounds = self.reports.iter().find(|((c, s), _)| c == &cell.key && s == name);
            let value = json!({
                "medians": medians,
                "reveille_over_this": self.ratio(cell, name),
                "rounds": rounds.map(|(_, reports)| reports),
            });
            subjects.insert((*name).to_owned(), value);
        }
        json!({ "key": cell.key, "title": cell.title, "subjects": subjects })
    }
}

pub(crate) fn spread(mut values: Vec<f64>) -> Option<Spread> {
    values.sort_by(f64::total_cmp);
    let (min, max) = (*values.first()?, *values.last()?);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let lower = if values.len().is_multiple_of(2) { *values.get(middle - 1)? } else { upper };
    Some(Spread { median: f64::midpoint(lower, upper), min, max })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cell;

    /// Results of every subject, with reports for the first cell: appends to one stream.
    pub(crate) fn results(rates: &[(&str, f64, f64)]) -> (Vec<Cell>, Results) {
        let machine = json!({ "cores": 2, "cpu": "A & B <fast>" });
        let mut results = Results::new(&subject::ALL.iter().collect::<Vec<_>>(), machine);
        let cells = cell::all(true);
        for (name, rate, errors) in rates {
            let subject = subject::ALL.iter().find(|subject| subject.name == *name).unwrap();
            let report = json!({ "per_second": rate, "error_rate": errors });
            results.add(&cells[0], subject, report);
        }
        (cells, results)
    }

    #[test]
    fn the_median_is_the_middle() {
        let median = |values: &[f64]| spread(values.to_vec()).map(|spread| spread.median);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn ratios_are_ours_over_theirs_of_the_medians() {
        let ours = [10.0, 30.0, 20.0].map(|rate| ("reveille", rate, 0.0));
        let theirs = [5.0, 4.0, 100.0].map(|rate| ("durable-streams", rate, 0.0));
        let (cells, results) = results(&[ours, theirs].concat());
        assert_eq!(results.ratio(&cells[0], "durable-streams"), Some(4.0));
        assert_eq!(results.ratio(&cells[0], "npm"), None);
        assert_eq!(results.ratio(&cells[1], "durable-streams"), None);
    }

    #[test]
    fn without_ours_there_is_nobody_to_compare_with() {
        let all: Vec<&Subject> = subject::ALL.iter().collect();
        assert_eq!(
            Results::new(&all, Value::Null).peers(),
            ["durable-streams", "npm", "plain-loop", "postgres"]
        );
        assert!(Results::new(&all[1..], Value::Null).peers().is_empty());
    }
}
