//! What is measured, of whom, and how often.

use clap::{Args, ValueEnum};

use crate::subject;

const ROUNDS: u32 = 3;

#[derive(Debug, Clone, Args)]
#[command(args_override_self = true)]
#[command(after_help = "Example: cargo xtask bench --only append,latency --rounds 5")]
pub struct Options {
    /// Short runs, one round: does it work, not how fast is it
    #[arg(long)]
    pub quick: bool,
    #[arg(long, value_name = "LIST", num_args = 1, value_delimiter = ',', value_parser = work)]
    #[arg(action = clap::ArgAction::Set, help = only_help())]
    pub only: Vec<Work>,
    #[arg(long, value_name = "LIST", num_args = 1, value_delimiter = ',', value_parser = subject)]
    #[arg(action = clap::ArgAction::Set, help = subjects_help())]
    pub subjects: Vec<String>,
    /// Rounds whose median counts [default: 3, or 1 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Work {
    Append,
    Read,
    Latency,
    Create,
    Idle,
    Wake,
    Wakes,
    Noisy,
    Deliveries,
    Delivery,
    Lanes,
    Triggers,
    Facts,
    Documents,
    Soak,
    Million,
    Consumers,
    MillionDocuments,
}

impl Options {
    pub(crate) fn includes(&self, work: Work) -> bool {
        self.only.is_empty() || self.only.contains(&work)
    }

    pub(crate) fn includes_subject(&self, name: &str) -> bool {
        self.subjects.is_empty() || self.subjects.iter().any(|wanted| wanted == name)
    }

    pub(crate) fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { ROUNDS })
    }
}

impl Work {
    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

fn work(name: &str) -> Result<Work, String> {
    let unknown = |_| format!("it is none of {}", works().join(", "));
    Work::from_str(name.trim(), false).map_err(unknown)
}

fn subject(name: &str) -> Result<String, String> {
    let name = name.trim();
    let known = subject::names();
    match known.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("it is none of {}", known.join(", "))),
    }
}

fn works() -> Vec<String> {
    Work::value_variants().iter().map(|work| work.name()).collect()
}

fn only_help() -> String {
    format!("Some of {} [default: all]", works().join(","))
}

fn subjects_help() -> String {
    format!("Some of {} [default: all]", subject::names().join(","))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: Options,
    }

    fn parse(args: &str) -> Result<Options, clap::Error> {
        let args = std::iter::once("bench").chain(args.split_ascii_whitespace());
        Cli::try_parse_from(args).map(|cli| cli.options)
    }

    #[test]
    fn options_choose_what_is_measured() {
        let all = parse("").unwrap();
        assert!(Work::value_variants().iter().all(|work| all.includes(*work)));
        assert!(subject::names().iter().all(|name| all.includes_subject(name)));
        assert_eq!((all.rounds(), all.quick), (3, false));
        let some = parse("--quick --only append,soak --subjects npm").unwrap();
        assert_eq!((some.only.as_slice(), some.rounds()), (&[Work::Append, Work::Soak][..], 1));
        assert_eq!(some.subjects, ["npm"]);
        assert!(!some.includes(Work::Read) && !some.includes_subject("reveille"));
        assert_eq!(parse("--quick --rounds 2").unwrap().rounds(), 2);
    }

    #[test]
    fn the_last_of_an_option_counts() {
        let twice = parse("--only append --rounds 2 --only read,idle --rounds 5").unwrap();
        assert_eq!(twice.only, [Work::Read, Work::Idle]);
        assert_eq!(twice.rounds(), 5);
    }

    #[test]
    fn wrong_options_are_refused() {
        for args in ["--only", "--only nothing", "--rounds 0", "--rounds x", "--subjects x", "x"] {
            assert!(parse(args).is_err(), "{args}");
        }
    }
}
