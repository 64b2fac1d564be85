//! What is measured of wakes: the two dialects, and neighbours that make trouble.

use std::time::Duration;

use super::{Cell, figures, less, more};
use crate::number::number;
use crate::options::Work;
use crate::setup::Setup;
use crate::subject::{REVEILLE_ONLY, WAKE_SERVERS};

/// The cells about wakes. The peer speaks `ds` alone, so that is what is compared; the dialect in
/// which every stream has a consumer of its own is measured beside it.
pub(crate) fn all(quick: bool) -> Vec<Cell> {
    let mut cells: Vec<Cell> = ["ds", "webhooks"].map(|dialect| wake(dialect, quick)).into();
    cells.push(noisy(quick));
    cells.extend(["ds", "webhooks"].map(|dialect| wakes(dialect, quick)));
    cells
}

fn wake(dialect: &str, quick: bool) -> Cell {
    let count = if quick { 200 } else { 1000 };
    let compared = dialect == "ds";
    let arguments = format!("wake --dialect {dialect} --count {count} --seconds 40");
    Cell {
        key: if compared { "wake" } else { "wake-webhooks" },
        work: Work::Wake,
        // The quiet figure that the noisy one is compared with.
        baseline_of: (!compared).then_some(Work::Noisy),
        subjects: if compared { WAKE_SERVERS } else { REVEILLE_ONLY },
        setup: Setup::Plain,
        title: format!("From sending an append to an idle consumer holding its wake, {dialect}"),
        figures: latencies(),
        limit: Duration::from_secs(90),
        slow_arguments: Some(arguments.clone()),
        arguments,
    }
}

fn noisy(quick: bool) -> Cell {
    let (dead, hanging, count): (u32, u32, u32) =
        if quick { (1000, 100, 200) } else { (10_000, 1000, 1000) };
    let arguments = format!(
        "wake --dialect webhooks --count {count} --seconds 60 --dead {dead} --hanging {hanging}"
    );
    Cell {
        // The goal is about the whole crowd: a quick run must not be judged by it.
        key: if quick { "noisy-quick" } else { "noisy" },
        work: Work::Noisy,
        baseline_of: None,
        subjects: REVEILLE_ONLY,
        setup: Setup::Plain,
        title: format!(
            "The same, webhooks, beside {} dead and {} hanging consumers",
            number(f64::from(dead)),
            number(f64::from(hanging))
        ),
        figures: latencies(),
        limit: Duration::from_secs(300),
        slow_arguments: None,
        arguments,
    }
}

fn latencies() -> Vec<super::Figure> {
    figures([
        less("p50 ms", "ms", "/latency_us/p50", 1e-3),
        less("p99 ms", "ms", "/latency_us/p99", 1e-3),
        less("answer p50 ms", "ms", "/answer_us/p50", 1e-3),
        less("plain append p50 ms", "ms", "/plain_us/p50", 1e-3),
        less("plain append p99 ms", "ms", "/plain_us/p99", 1e-3),
    ])
}

/// In `ds` 96 streams: the peer keeps at most 100 files open and answers 404 beyond. And fewer
/// connections: appends to a stream whose consumer is busy wake nobody, and are no wakes.
fn wakes(dialect: &str, quick: bool) -> Cell {
    let seconds = if quick { 2 } else { 5 };
    let (key, subjects, streams, shown, connections) = match dialect {
        "ds" => ("wakes", WAKE_SERVERS, 96, "96", 64),
        _ => ("wakes-webhooks", REVEILLE_ONLY, 1000, "1,000", 64),
    };
    let arguments = format!(
        "wakes --dialect {dialect} --streams {streams} --connections {connections} \
         --seconds {seconds}"
    );
    Cell {
        key,
        work: Work::Wakes,
        baseline_of: None,
        subjects,
        setup: Setup::Plain,
        title: format!(
            "Wakes of {shown} consumers, appends over {connections} connections, {dialect}"
        ),
        figures: figures([
            more("wakes/s", "/s", "/per_second", 1.0),
            more("appends/s", "/s", "/woken/appends_per_second", 1.0),
            less("append p50 ms", "ms", "/latency_us/p50", 1e-3),
            less("append p99 ms", "ms", "/latency_us/p99", 1e-3),
        ]),
        limit: Duration::from_secs(120),
        slow_arguments: Some(arguments.clone()),
        arguments,
    }
}
