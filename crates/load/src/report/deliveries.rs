//! What a report says of deliveries.

use std::fmt;

use serde::Serialize;

/// What is known of deliveries beside the operations of a report.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DeliveryFigures {
    /// Deliveries that the endpoint answered in the measured time.
    pub deliveries: u64,
    /// Events that were taken in during it.
    pub events: u64,
    /// Events per second.
    pub events_per_second: f64,
    /// Deliveries that the endpoint took and never answered, over the whole run.
    pub hanging: u64,
    /// For `delivery --flood`: events per second of the tenant that floods.
    pub flood_events_per_second: Option<f64>,
    /// For `delivery --flood`: deliveries to its own live hook, over the whole run.
    pub flood_deliveries: Option<u64>,
}

impl fmt::Display for DeliveryFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.events > 0 {
            let rate = self.events_per_second;
            writeln!(f, "  events      {rate:.1}/s   ({} in all)", self.events)?;
        }
        if self.hanging > 0 {
            writeln!(f, "  hanging     {} deliveries taken and never answered", self.hanging)?;
        }
        if let (Some(rate), Some(deliveries)) =
            (self.flood_events_per_second, self.flood_deliveries)
        {
            writeln!(f, "  flood       {rate:.1} events/s   {deliveries} deliveries")?;
        }
        Ok(())
    }
}
