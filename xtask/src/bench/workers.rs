//! Where the workers of a run are: what the server is told of them, and what the generator.

use anyhow::Context as _;

use super::cell::Setup;
use super::server;

/// The key of a server that lives for one run on this machine alone.
const ADMIN_KEY: &str = "rv_benchmark-of-one-run-only";
/// What the loop that only calls has in flight: the better of the two counts.
const IN_FLIGHT: [u32; 2] = [64, 512];

/// One run of a server: what it is told beside its data directory.
#[derive(Debug, Default)]
pub(super) struct Run {
    /// For the server.
    pub(super) flags: Vec<String>,
    /// For the generator.
    pub(super) arguments: Vec<String>,
    /// For the loop that only calls.
    pub(super) called: Option<Called>,
}

/// What the loop calls.
#[derive(Debug)]
pub(super) struct Called {
    pub(super) address: String,
    pub(super) hooks: u32,
    pub(super) in_flight: u32,
}

impl Run {
    /// The runs that a cell takes: one, but of the loop that only calls one for each number of
    /// calls in flight.
    pub(super) fn all(setup: Setup, is_loop: bool) -> anyhow::Result<Vec<Run>> {
        if !is_loop {
            return Ok(vec![Run::of(setup)?]);
        }
        let runs = IN_FLIGHT.map(|in_flight| {
            let Setup::Deliveries { hooks } = setup else { return Ok(Run::default()) };
            let mut run = Run::of(setup)?;
            run.arguments.push("--loop".to_owned());
            let address = run.arguments.get(1).context("the sink has an address")?.clone();
            run.called = Some(Called { address, hooks, in_flight });
            Ok(run)
        });
        runs.into_iter().collect()
    }

    fn of(setup: Setup) -> anyhow::Result<Run> {
        if setup == Setup::Plain {
            return Ok(Run::default());
        }
        let (sink, beside) = (address()?, address()?);
        let mut run = Run::default();
        let template = format!("http://{sink}/{{workerId}}/{{rpcMethod}}");
        run.flags.extend(["--worker-url-template".to_owned(), template]);
        for (name, path) in [("hanging", "hanging"), ("flooded", "live")] {
            run.flags.extend(["--binding".to_owned(), format!("{name}=http://{beside}/{path}")]);
        }
        run.arguments.extend(["--sink".to_owned(), sink]);
        if !matches!(setup, Setup::Deliveries { .. }) {
            run.arguments.extend(["--beside".to_owned(), beside]);
        }
        if setup == Setup::WorkersAndKeys {
            run.flags.extend(["--auth", "keys", "--admin-key", ADMIN_KEY].map(str::to_owned));
            run.arguments.extend(["--key", ADMIN_KEY].map(str::to_owned));
        }
        Ok(run)
    }
}

fn address() -> anyhow::Result<String> {
    Ok(format!("127.0.0.1:{}", server::free_port()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_generator_are_told_the_same_addresses() {
        let run = Run::of(Setup::WorkersAndKeys).unwrap();
        let [sink, beside] = [1, 3].map(|at| run.arguments[at].clone());
        assert_ne!(sink, beside);
        assert!(run.flags[1].starts_with(&format!("http://{sink}/")), "{run:?}");
        assert_eq!(run.flags[3], format!("hanging=http://{beside}/hanging"));
        assert_eq!(run.arguments[5], run.flags[9]);
        assert!(Run::of(Setup::Plain).unwrap().flags.is_empty());
    }

    #[test]
    fn the_loop_runs_once_for_each_number_in_flight() {
        let runs = Run::all(Setup::Deliveries { hooks: 7 }, true).unwrap();
        let called: Vec<&Called> = runs.iter().filter_map(|run| run.called.as_ref()).collect();
        assert_eq!(called.iter().map(|it| it.in_flight).collect::<Vec<_>>(), IN_FLIGHT);
        assert!(called.iter().all(|it| it.hooks == 7));
        assert!(runs.iter().all(|run| run.arguments.last().unwrap() == "--loop"));
        assert_eq!(Run::all(Setup::Deliveries { hooks: 7 }, false).unwrap().len(), 1);
    }
}
