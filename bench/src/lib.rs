//! `cargo xtask bench`: reveille and its peers, one at a time, under one load generator.
//!
//! ```text
//! for every round
//!   for every cell (appends to one stream, appends to a thousand, …)
//!     for every subject (reveille and its peers of that cell; the order turns each round)
//!       a new data directory, a new server process, one run of the generator, kill, remove
//! then reveille alone: a million streams, consumers and documents, deliveries in order, and
//! the soak
//! ```
//!
//! The medians, their ratios and the goals go to standard output and to `target/bench`.

mod options;

mod alone;
mod cell;
mod engine;
mod million;
mod soak;

mod goal;
mod results;

mod chart;
mod number;
mod table;

mod environment;
mod generator;
mod machine;
mod postgres;
mod server;
mod setup;
mod subject;

use std::path::Path;

use anyhow::{Context as _, ensure};
use harness::workspace;
use serde_json::Value;

use cell::Cell;
use environment::Environment;
use generator::Generator;
pub use options::{Options, Work};
use results::Results;
use server::DataDir;
use setup::RunSettings;
use subject::Subject;

/// Obtains the subjects, measures them and writes the report; an error if any run failed.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let target = workspace::target()?;
    let cells: Vec<Cell> = cell::all(options.quick)
        .into_iter()
        .filter(|cell| {
            let baseline_of = cell.baseline_of;
            options.includes(cell.work) || baseline_of.is_some_and(|work| options.includes(work))
        })
        .collect();
    let subjects: Vec<&Subject> = subject::ALL
        .iter()
        .filter(|subject| options.includes_subject(subject.name))
        // Nobody is built or installed to do nothing; what is done alone reveille does.
        .filter(|it| it.name == subject::REVEILLE || cells.iter().any(|cell| cell.includes(it)))
        .collect();
    for subject in &subjects {
        subject.obtain(&target).with_context(|| format!("cannot obtain {}", subject.name))?;
    }
    let reveille = subjects.iter().copied().find(|subject| subject.name == subject::REVEILLE);
    let generator = Generator::build(&target, reveille.is_some())?;
    let environment = Environment { target, generator, quick: options.quick };

    for subject in &subjects {
        server::empty_log(&environment.target, subject)?;
    }
    let mut results = Results::new(&subjects, machine::describe(&environment.target));
    for round in 0..options.rounds() {
        for cell in &cells {
            for subject in rotated(&subjects, round) {
                measure(&environment, cell, subject, round, &mut results);
            }
        }
    }
    if let Some(reveille) = reveille {
        measure_alone(&environment, reveille, options, &mut results);
    }
    write_report(&environment.target, &cells, &results)?;
    ensure!(results.failures.is_empty(), "failed:\n{}", results.failures.join("\n"));
    Ok(())
}

/// One server from its start to its end, with one run of the generator.
fn measure(
    environment: &Environment,
    cell: &Cell,
    subject: &Subject,
    round: u32,
    results: &mut Results,
) {
    let Some(arguments) = cell.arguments(subject) else {
        return;
    };
    eprintln!("round {}  {:12}  {}", round + 1, cell.key, subject.name);
    match best_report(environment, cell, subject, &arguments) {
        Ok(report) => results.add(cell, subject, report),
        Err(error) => results.fail(&format!("{}, {}", cell.key, subject.name), &error),
    }
}

/// The report of one run, or of several settings of a subject the one with the best main figure.
fn best_report(
    environment: &Environment,
    cell: &Cell,
    subject: &Subject,
    arguments: &[String],
) -> anyhow::Result<Value> {
    let mut best: Option<Value> = None;
    for settings in RunSettings::all(cell.setup, subject.is_loop())? {
        let data = DataDir::new(&environment.target, subject.name)?;
        let server = server::start(&environment.target, subject, &data, &settings)?;
        let arguments = [arguments, &settings.generator_arguments, &subject.generator_arguments()];
        let arguments = arguments.concat();
        let mut report = environment.generator.run(&arguments, &server, cell.limit)?;
        if let (Some(target), Some(report)) = (&settings.loop_target, report.as_object_mut()) {
            report.insert("in_flight".to_owned(), target.in_flight.into());
        }
        let figure = |report: &Value| cell.main().and_then(|figure| figure.of(report));
        if best.as_ref().is_none_or(|best| figure(best) < figure(&report)) {
            best = Some(report);
        }
    }
    best.context("there is something to run")
}

/// What has no peer.
fn measure_alone(
    environment: &Environment,
    reveille: &Subject,
    options: &Options,
    results: &mut Results,
) {
    for work in alone::ALL.iter().filter(|it| options.includes(it.work)) {
        results.record(work.work, (work.run)(environment, reveille));
    }
}

fn write_report(target: &Path, cells: &[Cell], results: &Results) -> anyhow::Result<()> {
    let directory = target.join("bench");
    std::fs::create_dir_all(&directory)?;
    let text = table::markdown(cells, results);
    print!("\n{text}");
    std::fs::write(directory.join("report.md"), &text)?;
    std::fs::write(directory.join("report.svg"), chart::svg(cells, results))?;
    std::fs::write(directory.join("report.json"), format!("{:#}\n", results.json(cells)))?;
    eprintln!("\nwrote {}/report.{{md,json,svg}}", directory.display());
    Ok(())
}

/// The subjects, beginning with another one each round: none always runs in the wake of the same.
fn rotated<'a>(subjects: &[&'a Subject], round: u32) -> Vec<&'a Subject> {
    let first = (round as usize).checked_rem(subjects.len()).unwrap_or(0);
    subjects.iter().cycle().skip(first).take(subjects.len()).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subject_goes_first_in_turn() {
        let subjects: Vec<&Subject> = subject::ALL.iter().collect();
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
        let first = (0..5).map(|round| rotated(&subjects, round)[0].name);
        assert_eq!(first.collect::<Vec<_>>(), names);
        assert_eq!(rotated(&subjects, 6).len(), 5);
        assert!(rotated(&[], 5).is_empty());
    }
}
