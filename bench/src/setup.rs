//! How one run is set up: where its workers are, for the server and for the generator alike.

use anyhow::Context as _;
use harness::server::free_port;

/// The key of a server that lives for one run on this machine alone.
const ADMIN_KEY: &str = "rv_benchmark-of-one-run-only";
/// What the loop that only calls has in flight: the better of the two counts.
const IN_FLIGHT: [u32; 2] = [64, 512];

/// What a server needs to know beside where its data lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setup {
    Plain,
    /// The addresses of workers.
    Workers,
    /// Those, and a key without which nobody gets in.
    WorkersAndKeys,
    /// Those; measured beside a loop that only calls as many hooks.
    Deliveries {
        hooks: u32,
    },
}

/// One run of a server, beside its data directory.
#[derive(Debug, Default)]
pub(crate) struct RunSettings {
    pub(crate) server_flags: Vec<String>,
    pub(crate) generator_arguments: Vec<String>,
    pub(crate) loop_target: Option<LoopTarget>,
}

/// What the loop that only calls has to call.
#[derive(Debug)]
pub(crate) struct LoopTarget {
    pub(crate) address: String,
    pub(crate) hooks: u32,
    pub(crate) in_flight: u32,
}

impl RunSettings {
    /// The runs that a cell takes: one, but of the loop that only calls one for each number of
    /// calls in flight.
    pub(crate) fn all(setup: Setup, is_loop: bool) -> anyhow::Result<Vec<RunSettings>> {
        if !is_loop {
            return Ok(vec![RunSettings::new(setup)?]);
        }
        let runs = IN_FLIGHT.map(|in_flight| {
            let Setup::Deliveries { hooks } = setup else { return Ok(RunSettings::default()) };
            let mut run = RunSettings::new(setup)?;
            run.generator_arguments.push("--loop".to_owned());
            let address =
                run.generator_arguments.get(1).context("the sink has an address")?.clone();
            run.loop_target = Some(LoopTarget { address, hooks, in_flight });
            Ok(run)
        });
        runs.into_iter().collect()
    }

    fn new(setup: Setup) -> anyhow::Result<RunSettings> {
        if setup == Setup::Plain {
            return Ok(RunSettings::default());
        }
        let (sink, beside) = (address()?, address()?);
        let mut run = RunSettings::default();
        let template = format!("http://{sink}/{{workerId}}/{{rpcMethod}}");
        run.server_flags.extend(["--worker-url-template".to_owned(), template]);
        for (name, path) in [("hanging", "hanging"), ("flooded", "live")] {
            run.server_flags
                .extend(["--binding".to_owned(), format!("{name}=http://{beside}/{path}")]);
        }
        run.generator_arguments.extend(["--sink".to_owned(), sink]);
        if !matches!(setup, Setup::Deliveries { .. }) {
            run.generator_arguments.extend(["--beside".to_owned(), beside]);
        }
        if setup == Setup::WorkersAndKeys {
            run.server_flags
                .extend(["--auth", "keys", "--admin-key", ADMIN_KEY].map(str::to_owned));
            run.server_flags.push("--allow-http-loopback".to_owned());
            run.generator_arguments.extend(["--key", ADMIN_KEY].map(str::to_owned));
        }
        Ok(run)
    }
}

fn address() -> anyhow::Result<String> {
    Ok(format!("127.0.0.1:{}", free_port()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_generator_get_the_same_addresses() {
        let run = RunSettings::new(Setup::WorkersAndKeys).unwrap();
        let [sink, beside] = [1, 3].map(|at| run.generator_arguments[at].clone());
        assert_ne!(sink, beside);
        assert!(run.server_flags[1].starts_with(&format!("http://{sink}/")), "{run:?}");
        assert_eq!(run.server_flags[3], format!("hanging=http://{beside}/hanging"));
        assert_eq!(run.generator_arguments[5], run.server_flags[9]);
        assert!(RunSettings::new(Setup::Plain).unwrap().server_flags.is_empty());
    }

    #[test]
    fn the_loop_runs_once_for_each_number_in_flight() {
        let runs = RunSettings::all(Setup::Deliveries { hooks: 7 }, true).unwrap();
        let targets: Vec<&LoopTarget> =
            runs.iter().filter_map(|run| run.loop_target.as_ref()).collect();
        assert_eq!(targets.iter().map(|it| it.in_flight).collect::<Vec<_>>(), IN_FLIGHT);
        assert!(targets.iter().all(|it| it.hooks == 7));
        assert!(runs.iter().all(|run| run.generator_arguments.last().unwrap() == "--loop"));
        assert_eq!(RunSettings::all(Setup::Deliveries { hooks: 7 }, false).unwrap().len(), 1);
    }
}
