//! What the server says while it runs: on standard error, for people on a terminal, else as JSON.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::failure::usage_error;

/// The first of these that is set says what is logged. (Not `REVEILLE_LOG`: that name belongs to
/// the setting that says where the log of events is kept.)
const FILTER_VARIABLES: [&str; 2] = ["REVEILLE_LOG_FILTER", "RUST_LOG"];
/// The table library tells at `info` what only its authors want to know.
const FILTER_DEFAULT: &str = "info,fjall=warn,lsm_tree=warn";

pub(crate) fn start() -> anyhow::Result<()> {
    let builder = tracing_subscriber::fmt().with_env_filter(filter()?).with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        builder.with_ansi(!plain).with_target(false).init();
    } else {
        builder.json().flatten_event(true).init();
    }
    Ok(())
}

fn filter() -> anyhow::Result<EnvFilter> {
    for variable in FILTER_VARIABLES {
        let Ok(text) = std::env::var(variable) else {
            continue;
        };
        if !text.is_empty() {
            return EnvFilter::try_new(&text).map_err(|error| {
                usage_error(format!(
                    "{variable}={text:?} is not a log filter ({error}); \
                     write a level such as `debug`, or `info,reveille_engine=debug`"
                ))
            });
        }
    }
    Ok(EnvFilter::new(FILTER_DEFAULT))
}
