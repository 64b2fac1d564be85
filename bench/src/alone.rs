//! What only reveille is measured at, one after another.

use serde_json::Value;

use crate::environment::Environment;
use crate::million::Million;
use crate::options::Work;
use crate::subject::Subject;
use crate::{engine, soak};

/// One of them.
pub(crate) struct Alone {
    pub(crate) work: Work,
    pub(crate) title: &'static str,
    pub(crate) run: fn(&Environment, &Subject) -> anyhow::Result<Value>,
}

pub(crate) const ALL: [Alone; 7] = [
    Alone {
        work: Work::Million,
        title: "Many streams and a restart",
        run: |environment, subject| Million::Streams.measure(environment, subject),
    },
    Alone {
        work: Work::Consumers,
        title: "Many idle consumers and a restart",
        run: |environment, subject| Million::Consumers.measure(environment, subject),
    },
    Alone {
        work: Work::MillionDocuments,
        title: "Many documents and a restart",
        run: |environment, subject| Million::Documents.measure(environment, subject),
    },
    Alone {
        work: Work::Lanes,
        title: "Deliveries in order",
        run: |environment, _| engine::run(environment, "lanes"),
    },
    Alone {
        work: Work::Triggers,
        title: "Triggers",
        run: |environment, _| engine::run(environment, "triggers"),
    },
    Alone {
        work: Work::Facts,
        title: "Facts",
        run: |environment, _| engine::run(environment, "facts"),
    },
    Alone { work: Work::Soak, title: "Soak", run: soak::run },
];
