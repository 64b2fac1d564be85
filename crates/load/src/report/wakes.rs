//! What a report says of wakes.

use std::fmt;

use serde::Serialize;

/// What is known of wakes beside the operations of a report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct WakeFigures {
    /// Wakes that the endpoint answered in the measured time.
    pub wakes: u64,
    /// Appends that were answered in it.
    pub appends: u64,
    /// Appends per second.
    pub appends_per_second: f64,
    /// For the work `consumers`: different consumers that were woken.
    pub consumers: u64,
    /// Wakes that the endpoint took and never answered, over the whole run.
    pub hanging: u64,
    /// For the work `consumers`: resident memory of the server when all of them were idle.
    pub idle_rss_bytes: Option<u64>,
    /// For the work `consumers`: the size of the data directory then.
    pub disk_bytes: Option<u64>,
}

impl fmt::Display for WakeFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.appends > 0 {
            let rate = self.appends_per_second;
            writeln!(f, "  appends     {rate:.1}/s   ({} in all)", self.appends)?;
        }
        if self.consumers > 0 {
            writeln!(f, "  consumers   {} woken", self.consumers)?;
        }
        if self.hanging > 0 {
            writeln!(f, "  hanging     {} wakes taken and never answered", self.hanging)?;
        }
        if let Some(rss) = self.idle_rss_bytes {
            writeln!(f, "  idle        {} MB RSS", rss / 1_000_000)?;
        }
        if let Some(disk) = self.disk_bytes {
            writeln!(f, "  disk        {} MB", disk / 1_000_000)?;
        }
        Ok(())
    }
}
