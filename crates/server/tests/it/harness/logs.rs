//! What the servers of this process say in their logs, for tests that read along.

use std::collections::VecDeque;
use std::fmt::{Debug, Write as _};
use std::sync::Mutex;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

/// Warnings that are remembered, the latest ones: of those who are called, and tests make few.
const LINES_MAX: usize = 10_000;

static WARNINGS: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());

/// Has warnings remembered. `REVEILLE_IT_LOG=info` shows what the server says while a test runs with
/// `--nocapture`.
pub(crate) fn listen() {
    let filter = std::env::var("REVEILLE_IT_LOG").ok().map(EnvFilter::new);
    let shown =
        filter.map(|it| tracing_subscriber::fmt::layer().with_test_writer().with_filter(it));
    let remembered = Memory.with_filter(LevelFilter::WARN);
    // The first server of the process has set it up for all.
    let _ = tracing_subscriber::registry().with(remembered).with(shown).try_init();
}

/// Warnings about whoever is called on this port, which no two tests share: each as its sentence and
/// then its fields.
pub(crate) fn warnings_about(port: u16) -> Vec<String> {
    let about = format!(" host=\"127.0.0.1:{port}\"");
    WARNINGS.lock().unwrap().iter().filter(|line| line.contains(&about)).cloned().collect()
}

struct Memory;

impl<S: tracing::Subscriber> Layer<S> for Memory {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        if line.fields.contains(" host=") {
            let mut warnings = WARNINGS.lock().unwrap();
            warnings.push_back(line.sentence + &line.fields);
            if warnings.len() > LINES_MAX {
                warnings.pop_front();
            }
        }
    }
}

#[derive(Default)]
struct Line {
    sentence: String,
    fields: String,
}

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.sentence, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
