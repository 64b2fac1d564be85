//! Work that can wait: how it lets others go first.
//!
//! A kernel that serves does not take the processor away from whoever computes before some
//! milliseconds are over, and whoever was queued behind it waits for that long even if another
//! processor is idle. So long work in the background gives way by itself, again and again.

use std::cell::Cell;

/// How much less of the processor work that can wait gets when there is not enough: about a tenth
/// of what others get.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

thread_local! {
    static STEPPED_BACK: Cell<bool> = const { Cell::new(false) };
}

/// Lets others go first from now on: the calling thread, and those that it begins.
pub fn step_back() {
    STEPPED_BACK.set(true);
    // Elsewhere this would be about the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::nice(NICE) {
        tracing::debug!(%error, "work that can wait does not");
    }
}

/// Lets others go first now, if the calling thread does that and if there are any.
pub(crate) fn give_way() {
    if STEPPED_BACK.get() {
        std::thread::yield_now();
    }
}

/// Gives way after every so many pieces of work.
pub(crate) struct YieldCounter {
    each: u32,
    done: u32,
}

impl YieldCounter {
    pub(crate) fn of(each: u32) -> YieldCounter {
        YieldCounter { each, done: 0 }
    }

    /// A piece of work was done.
    pub(crate) fn count(&mut self) {
        self.done += 1;
        if self.done == self.each {
            self.done = 0;
            give_way();
        }
    }
}
