//! The end of a run: everything is healed, finished and taken down, and nothing may be left.

use reveille_core::stream::Expiry;
use reveille_schema::keys;

use super::Streams;
use super::action::Action;
use super::request::StreamRequest;
use crate::base::engine::timer_keys;
use crate::base::{CheckResult, Origin, World, crash, finale, violation};

/// Longer than any lifetime that clients ask for.
const LONG_MS: u64 = 3 * 3_600_000;

impl Streams {
    pub(super) fn take_everything_down(&mut self) -> CheckResult {
        finale::heal(self)?;
        finale::settle(self)?;
        self.audit()?;
        self.base.set_clock(self.base.latest + LONG_MS);
        finale::settle(self)?;
        self.all_expired()?;
        for path in self.paths.clone() {
            let request = StreamRequest::new(&self.tenant, Action::Delete { path });
            self.base.run(Origin::Client, request);
        }
        finale::settle(self)?;
        self.base.set_clock(self.base.latest + LONG_MS);
        finale::settle(self)?;
        self.nothing_left()?;
        crash::crash_cleanly(self)?;
        finale::settle(self)?;
        self.nothing_left()
    }

    fn all_expired(&self) -> CheckResult {
        for (path, stream) in &self.durable.streams {
            if stream.expiry != Expiry::Never && !stream.soft {
                return Err(violation(format!("{path} should have expired")));
            }
        }
        Ok(())
    }

    /// Everything was deleted: only counters remain.
    fn nothing_left(&mut self) -> CheckResult {
        finale::apply_all(self)?;
        self.audit()?;
        if !self.durable.streams.is_empty() {
            let left: Vec<&String> = self.durable.streams.keys().collect();
            return Err(violation(format!("{left:?} were deleted and are there")));
        }
        let from = keys::stream_prefix(&self.tenant, "");
        let reader = self.base.reader();
        let (_, timers_end) = timer_keys();
        let left = reader.keys(&from, &timers_end, usize::MAX);
        let left = left.map_err(|error| violation(error.to_string()))?;
        if left.is_empty() { Ok(()) } else { Err(violation(format!("left over are {left:?}"))) }
    }
}
