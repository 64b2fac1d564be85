//! What a report says of idle readers and the message that reaches them all.

use std::fmt;

use serde::Serialize;

use crate::histogram::Latency;

/// What became of the idle readers.
#[derive(Debug, Clone, Serialize)]
pub struct Fanout {
    /// Readers that were to be opened.
    pub readers: u64,
    /// Readers that were up at once.
    pub up: u64,
    /// Readers that got the message.
    pub received: u64,
    /// The time from sending the message to each reader holding it, in microseconds; `max` is the
    /// last reader.
    pub arrival_us: Option<Latency>,
    /// Resident memory of the server before the first reader.
    pub rss_before_bytes: Option<u64>,
    /// Resident memory of the server with all of them waiting.
    pub rss_up_bytes: Option<u64>,
    /// The difference, per reader.
    pub rss_per_reader_bytes: Option<u64>,
}

impl fmt::Display for Fanout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fanout { readers, up, received, .. } = self;
        writeln!(f, "  readers     {up} of {readers} up, {received} received the message")?;
        if let Some(arrival) = &self.arrival_us {
            writeln!(f, "  arrival     {arrival}")?;
        }
        if let Some(bytes) = self.rss_per_reader_bytes {
            writeln!(f, "  memory      {:.1} KB RSS per reader", bytes as f64 / 1000.0)?;
        }
        Ok(())
    }
}
