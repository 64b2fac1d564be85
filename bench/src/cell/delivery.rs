//! What is measured of deliveries: how many, how soon, and beside whom.

use std::time::Duration;

use super::{Cell, Figure, figures, less, more};
use crate::options::Work;
use crate::setup::Setup;
use crate::subject::{DELIVERY_SERVERS, REVEILLE_ONLY};

/// Hooks that take everything and never answer.
const HANGING: u32 = 1;

pub(crate) fn all(quick: bool) -> Vec<Cell> {
    let mut cells: Vec<Cell> = [(1, 100), (1000, 1)].map(|it| deliveries(it, quick)).into();
    cells.extend([
        delivery("delivery", "quiet", "", Setup::Workers, quick),
        delivery(
            "delivery-hanging",
            "beside a hook of the same tenant that never answers",
            &format!("--hanging {HANGING}"),
            Setup::Workers,
            quick,
        ),
        delivery("delivery-keys", "quiet, with keys", "", Setup::WorkersAndKeys, quick),
        delivery(
            "delivery-flood",
            "beside another tenant that floods the server and has a hook that never answers",
            &format!("--flood --hanging {HANGING}"),
            Setup::WorkersAndKeys,
            quick,
        ),
    ]);
    cells
}

fn deliveries((hooks, batch): (u32, u32), quick: bool) -> Cell {
    let seconds = if quick { 2 } else { 5 };
    Cell {
        key: if hooks == 1 { "deliveries-1" } else { "deliveries-1000" },
        work: Work::Deliveries,
        baseline_of: None,
        subjects: DELIVERY_SERVERS,
        setup: Setup::Deliveries { hooks },
        title: match hooks {
            1 => "Deliveries to 1 hook, 100 events a request".to_owned(),
            _ => "Deliveries to 1,000 hooks, 1 event a request".to_owned(),
        },
        figures: figures([
            more("deliveries/s", "/s", "/per_second", 1.0),
            more("events/s", "/s", "/delivered/events_per_second", 1.0),
            less("ingest p50 ms", "ms", "/latency_us/p50", 1e-3),
            less("ingest p99 ms", "ms", "/latency_us/p99", 1e-3),
            more("in flight", "", "/in_flight", 1.0),
            less("generator cores", "cores", "/used/generator_cores", 1.0),
        ]),
        limit: Duration::from_secs(180),
        arguments: format!(
            "deliveries --hooks {hooks} --batch {batch} --connections 16 --ahead 10000 \
             --seconds {seconds}"
        ),
        slow_arguments: None,
    }
}

fn delivery(
    key: &'static str,
    beside: &str,
    more_arguments: &str,
    setup: Setup,
    quick: bool,
) -> Cell {
    let count = if quick { 200 } else { 1000 };
    Cell {
        key,
        work: Work::Delivery,
        baseline_of: None,
        subjects: REVEILLE_ONLY,
        setup,
        title: format!("From sending an event to its hook holding the delivery, {beside}"),
        figures: latencies(),
        limit: Duration::from_secs(180),
        arguments: format!("delivery --count {count} --seconds 60 --patience 1 {more_arguments}"),
        slow_arguments: None,
    }
}

fn latencies() -> Vec<Figure> {
    figures([
        less("p50 ms", "ms", "/latency_us/p50", 1e-3),
        less("p99 ms", "ms", "/latency_us/p99", 1e-3),
        less("answer p50 ms", "ms", "/answer_us/p50", 1e-3),
        less("answer p99 ms", "ms", "/answer_us/p99", 1e-3),
        more("hanging", "", "/delivered/hanging", 1.0),
        more("flood events/s", "/s", "/delivered/flood_events_per_second", 1.0),
        less("generator cores", "cores", "/used/generator_cores", 1.0),
    ])
}
