//! What is measured of facts beside appends; what their gate costs is measured on the engine alone.

use std::time::Duration;

use super::{Cell, rate};
use crate::options::Work;
use crate::setup::Setup;
use crate::subject::REVEILLE_ONLY;

const CONNECTIONS: u32 = 64;

pub(super) fn write(quick: bool) -> Cell {
    let seconds = if quick { 2 } else { 5 };
    Cell {
        key: "facts-write",
        work: Work::Facts,
        baseline_of: None,
        subjects: REVEILLE_ONLY,
        setup: Setup::Plain,
        title: format!("Durable facts in bodies of 200 B each, {CONNECTIONS} connections"),
        figures: rate("facts/s"),
        limit: Duration::from_secs(180),
        slow_arguments: None,
        arguments: format!("facts --connections {CONNECTIONS} --seconds {seconds}"),
    }
}
