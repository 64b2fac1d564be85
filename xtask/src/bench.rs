//! `cargo xtask bench`: reveille and its peers, one at a time, under one load generator.
//!
//! ```text
//! for every round
//!   for every cell (appends to one stream, appends to a thousand, …)
//!     for every subject (reveille, durable-streams, the npm server; the order turns each round)
//!       a new data directory, a new server process, one run of the generator, kill, remove
//! then reveille alone: a million streams, a million consumers, and the soak
//! ```
//!
//! The medians, their ratios and the goals go to standard output and to `target/bench`.

mod cell;
mod consumers;
mod goal;
mod million;
mod results;
mod soak;
mod subject;

mod chart;
mod table;

mod clock;
mod generator;
mod machine;
mod server;
mod workers;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use cell::Cell;
use generator::Generator;
use results::Results;
use server::{DataDir, Server};
use subject::Subject;
use workers::Run;

const HELP: &str = "\
Measures reveille beside its peers and writes target/bench/report.{md,json,svg}.

Usage: cargo xtask bench [OPTIONS]

Options:
  --quick             short runs, one round: does it work, not how fast is it
  --only LIST         some of append,read,latency,create,idle,wake,wakes,noisy,deliveries,
                      delivery,soak,million,consumers
  --subjects LIST     some of reveille,durable-streams,npm,plain-loop
  --rounds N          rounds whose median counts [default: 3]
  --help              this text

Example: cargo xtask bench --only append,latency --rounds 5
";

const WORKS: [&str; 13] = [
    "append",
    "read",
    "latency",
    "create",
    "idle",
    "wake",
    "wakes",
    "noisy",
    "deliveries",
    "delivery",
    "soak",
    "million",
    "consumers",
];

#[derive(Debug, PartialEq, Eq)]
struct Options {
    quick: bool,
    only: Vec<String>,
    subjects: Vec<String>,
    rounds: usize,
}

/// Everything a run needs to know about where it runs.
struct Place {
    root: PathBuf,
    generator: Generator,
    quick: bool,
}

/// The entry of `cargo xtask bench`.
pub(crate) fn run(args: Vec<String>) -> anyhow::Result<()> {
    let Some(options) = parse(&args)? else {
        print!("{HELP}");
        return Ok(());
    };
    let root = root()?;
    let wanted = |work: &str| options.only.iter().any(|name| name == work);
    let cells: Vec<Cell> = cell::all(options.quick)
        .into_iter()
        .filter(|cell| wanted(cell.work) || cell.beside.is_some_and(wanted))
        .collect();
    let subjects: Vec<&Subject> = subject::ALL
        .iter()
        .filter(|subject| options.subjects.iter().any(|name| name == subject.name))
        // Nobody is built or installed to do nothing; what is done alone reveille does.
        .filter(|it| it.name == subject::OURS || cells.iter().any(|cell| cell.takes(it)))
        .collect();
    for subject in &subjects {
        subject.obtain(&root).with_context(|| format!("cannot obtain {}", subject.name))?;
    }
    let alone = subjects.iter().copied().find(|subject| subject.name == subject::OURS);
    let generator = Generator::build(&root, alone.is_some())?;
    let place = Place { root, generator, quick: options.quick };

    for subject in &subjects {
        server::forget_log(&place.root, subject)?;
    }
    let mut results = Results::new(&subjects, machine::describe(&place.root));
    for round in 0..options.rounds {
        for cell in &cells {
            for subject in turned(&subjects, round) {
                measure(&place, cell, subject, round, &mut results);
            }
        }
    }
    if let Some(ours) = alone {
        if wanted("million") {
            results.million = results.checked("million", million::run(&place, ours));
        }
        if wanted("consumers") {
            results.consumers = results.checked("consumers", consumers::run(&place, ours));
        }
        if wanted("soak") {
            results.soak = results.checked("soak", soak::run(&place, ours));
        }
    }
    write(&place.root, &cells, &results)?;
    ensure!(results.failures.is_empty(), "failed:\n{}", results.failures.join("\n"));
    Ok(())
}

/// One server from its start to its end, with one run of the generator.
fn measure(place: &Place, cell: &Cell, subject: &Subject, round: usize, results: &mut Results) {
    let Some(arguments) = cell.arguments(subject) else {
        return;
    };
    eprintln!("round {}  {:12}  {}", round + 1, cell.key, subject.name);
    match best(place, cell, subject, &arguments) {
        Ok(report) => results.add(cell, subject, report),
        Err(error) => results.fail(&format!("{}, {}", cell.key, subject.name), &error),
    }
}

/// The report of one run, or of several settings of a subject the one with the best main figure.
fn best(
    place: &Place,
    cell: &Cell,
    subject: &Subject,
    arguments: &[String],
) -> anyhow::Result<Value> {
    let mut best: Option<Value> = None;
    for run in Run::all(cell.setup, subject.is_loop())? {
        let data = DataDir::new(&place.root, subject.name)?;
        let server = Server::start_told(&place.root, subject, &data, &run)?;
        let arguments = [arguments, &run.arguments].concat();
        let mut report = place.generator.run(&arguments, &server, cell.limit)?;
        if let (Some(called), Some(report)) = (&run.called, report.as_object_mut()) {
            report.insert("in_flight".to_owned(), called.in_flight.into());
        }
        let figure = |report: &Value| cell.main().and_then(|figure| figure.of(report));
        if best.as_ref().is_none_or(|best| figure(best) < figure(&report)) {
            best = Some(report);
        }
    }
    best.context("there is something to run")
}

fn write(root: &Path, cells: &[Cell], results: &Results) -> anyhow::Result<()> {
    let directory = root.join("target/bench");
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
fn turned<'a>(subjects: &[&'a Subject], round: usize) -> Vec<&'a Subject> {
    let first = round.checked_rem(subjects.len()).unwrap_or(0);
    subjects.iter().cycle().skip(first).take(subjects.len()).copied().collect()
}

/// `None` when help was asked for.
fn parse(args: &[String]) -> anyhow::Result<Option<Options>> {
    let names: Vec<&str> = subject::ALL.iter().map(|subject| subject.name).collect();
    let mut options = Options {
        quick: false,
        only: WORKS.map(str::to_owned).to_vec(),
        subjects: names.iter().map(|&name| name.to_owned()).collect(),
        rounds: 0,
    };
    let mut rounds = None;
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg {
            "--quick" => options.quick = true,
            "--only" => options.only = list(value()?, &WORKS)?,
            "--subjects" => options.subjects = list(value()?, &names)?,
            "--rounds" => rounds = Some(value()?.parse().context("--rounds needs a number")?),
            "--help" | "-h" => return Ok(None),
            other => bail!("unknown option {other}; see cargo xtask bench --help"),
        }
    }
    options.rounds = rounds.unwrap_or(if options.quick { 1 } else { 3 });
    ensure!(options.rounds > 0, "--rounds must be at least 1");
    Ok(Some(options))
}

fn list(value: &str, known: &[&str]) -> anyhow::Result<Vec<String>> {
    let names: Vec<String> = value.split(',').map(|name| name.trim().to_owned()).collect();
    for name in &names {
        ensure!(known.contains(&name.as_str()), "{name:?} is none of {}", known.join(", "));
    }
    Ok(names)
}

fn root() -> anyhow::Result<PathBuf> {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    Ok(manifest.parent().context("xtask lies in the workspace")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &str) -> anyhow::Result<Option<Options>> {
        parse(&args.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_choose_what_is_measured() {
        let all = parsed("").unwrap().unwrap();
        assert_eq!((all.only.len(), all.subjects.len(), all.rounds, all.quick), (13, 4, 3, false));
        let some = parsed("--quick --only append,soak --subjects npm").unwrap().unwrap();
        assert_eq!((some.only.len(), some.rounds), (2, 1));
        assert_eq!(some.subjects, ["npm"]);
        assert_eq!(parsed("--quick --rounds 2").unwrap().unwrap().rounds, 2);
        assert_eq!(parsed("--help").unwrap(), None);
    }

    #[test]
    fn wrong_options_are_refused() {
        for args in ["--only", "--only nothing", "--rounds 0", "--rounds x", "--subjects x", "x"] {
            assert!(parsed(args).is_err(), "{args}");
        }
    }

    #[test]
    fn every_subject_goes_first_in_turn() {
        let subjects: Vec<&Subject> = subject::ALL.iter().collect();
        let first: Vec<&str> = (0..4).map(|round| turned(&subjects, round)[0].name).collect();
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
        assert_eq!(first, [names[0], names[1], names[2], names[3]]);
        assert_eq!(turned(&subjects, 5).len(), 4);
        assert!(turned(&[], 5).is_empty());
    }
}
