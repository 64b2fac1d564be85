//! What must be on disk: every promise the server made, stream by stream.
//!
//! An append is *acknowledged* (it has an answer, hence an offset), *unanswered* (the kill came
//! first), or *settled* (a read after a restart has shown it, or has shown that it is not there).
//!
//! ```text
//!                 settled            since then
//! observed  [ a b c d e f ][ g h i j k ]
//!             exactly these  all acknowledged, by offset; any unanswered, at most once;
//!                            beginning with whatever a reader was shown before the kill
//! ```

use std::collections::{BTreeMap, HashSet};

use crate::message::{Append, AppendId, MessageFormat};
use crate::tenants::TenantPath;

/// A broken promise, in a sentence.
pub(crate) type Violation = String;

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) path: TenantPath,
    pub(crate) kind: MessageFormat,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) close_state: CloseState,
    pub(crate) log: Log,
    /// By connection: each is a producer of its own.
    pub(crate) producers: BTreeMap<usize, Producer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    Absent,
    /// Asked for, not answered.
    Creating,
    Present,
    /// Asked for, not answered.
    Deleting,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CloseState {
    Open,
    /// Asked for, not answered; with this append in the same request.
    Requested(Option<AppendId>),
    /// For good, with this final offset.
    Closed(String),
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    /// DeliveryIds after the last restart, in this order.
    pub(crate) settled: Vec<AppendId>,
    /// Where the settled part ends: the offset to read the rest from.
    pub(crate) settled_end: Option<String>,
    /// Acknowledged since, with the offset of the answer.
    acknowledged: Vec<(String, AppendId)>,
    unanswered: HashSet<AppendId>,
    /// The longest beginning of the rest that a reader was shown.
    shown: Vec<AppendId>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Producer {
    pub(crate) epoch: u64,
    pub(crate) next_seq: u64,
    /// The last one acknowledged, to be repeated on purpose.
    pub(crate) last: Option<ProducerAppend>,
    /// The one that the kill left without an answer, to be repeated after the restart.
    pub(crate) unanswered: Option<ProducerAppend>,
}

#[derive(Debug, Clone)]
pub(crate) struct ProducerAppend {
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
    pub(crate) append: Append,
    pub(crate) close: bool,
}

/// What a whole read of a stream has shown.
#[derive(Debug)]
pub(crate) struct StreamRead {
    pub(crate) kind: MessageFormat,
    pub(crate) appends: Vec<AppendId>,
    pub(crate) end: String,
    pub(crate) is_closed: bool,
}

impl Stream {
    pub(crate) fn absent(path: TenantPath, kind: MessageFormat) -> Stream {
        Stream {
            path,
            kind,
            lifecycle: Lifecycle::Absent,
            close_state: CloseState::Open,
            log: Log::default(),
            producers: BTreeMap::new(),
        }
    }

    /// As if it had never been.
    pub(crate) fn reset(&mut self) {
        *self = Stream::absent(self.path.clone(), self.kind);
    }

    /// Compares with a read after a restart; what it shows is the truth from then on.
    pub(crate) fn settle(&mut self, observed: Option<StreamRead>) -> Result<(), Violation> {
        let Some(observed) = observed else {
            if self.lifecycle == Lifecycle::Present {
                return Err(format!("{} is gone", self.path));
            }
            self.reset();
            return Ok(());
        };
        if self.lifecycle == Lifecycle::Absent {
            return Err(format!("{} is there, but was deleted or never created", self.path));
        }
        self.lifecycle = Lifecycle::Present;
        if observed.kind != self.kind {
            return Err(format!("{}: {:?} became {:?}", self.path, self.kind, observed.kind));
        }
        self.settle_closed(&observed)?;
        let settled = self.log.settle(observed.appends, observed.end);
        settled.map_err(|violation| format!("{}: {violation}", self.path))
    }

    fn settle_closed(&mut self, observed: &StreamRead) -> Result<(), Violation> {
        let path = &self.path;
        match (&self.close_state, observed.is_closed) {
            (CloseState::Open, true) => {
                return Err(format!("{path} is closed, nobody asked for it"));
            }
            (CloseState::Closed(_), false) => return Err(format!("{path} is open again")),
            (CloseState::Closed(end), true) if *end != observed.end => {
                return Err(format!("{path} was closed at {end}, now ends at {}", observed.end));
            }
            (CloseState::Requested(Some(id)), closed) => {
                let is_last = observed.appends.last() == Some(id);
                if closed && !is_last {
                    return Err(format!("{path} is closed, but does not end with append {id:x}"));
                }
                if !closed && observed.appends.contains(id) {
                    return Err(format!("{path} is open, but has append {id:x} that closed it"));
                }
            }
            _ => {}
        }
        self.close_state = if observed.is_closed {
            CloseState::Closed(observed.end.clone())
        } else {
            CloseState::Open
        };
        Ok(())
    }
}

impl Log {
    /// To be called before the request is sent.
    pub(crate) fn requested(&mut self, id: AppendId) {
        self.unanswered.insert(id);
    }

    pub(crate) fn acknowledged(&mut self, id: AppendId, offset: String) {
        self.unanswered.remove(&id);
        self.acknowledged.push((offset, id));
    }

    pub(crate) fn refused(&mut self, id: AppendId) {
        self.unanswered.remove(&id);
    }

    pub(crate) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// How many acknowledged appends a read that starts now must show.
    pub(crate) fn acknowledged_now(&self) -> usize {
        self.acknowledged.len()
    }

    /// A reader was shown this, from the end of the settled part on, when `expected` appends had
    /// been acknowledged before it asked.
    pub(crate) fn record_read(
        &mut self,
        rest: Vec<AppendId>,
        expected: usize,
    ) -> Result<(), Violation> {
        if let Some((_, id)) =
            self.acknowledged.iter().take(expected).find(|(_, id)| !rest.contains(id))
        {
            return Err(format!("append {id:x} was acknowledged, a later read misses it"));
        }
        let (short, long) =
            if rest.len() < self.shown.len() { (&rest, &self.shown) } else { (&self.shown, &rest) };
        if !long.starts_with(short) {
            return Err("two reads show different appends at the same offset".to_owned());
        }
        if rest.len() > self.shown.len() {
            self.shown = rest;
        }
        Ok(())
    }

    fn settle(&mut self, observed: Vec<AppendId>, end: String) -> Result<(), Violation> {
        let Some(rest) = observed.strip_prefix(self.settled.as_slice()) else {
            return Err(first_difference(&self.settled, &observed));
        };
        if let Some(before) = self.settled_end.as_ref().filter(|_| rest.is_empty())
            && *before != end
        {
            return Err(format!("ended at {before}, now at {end} with the same appends"));
        }
        if !rest.starts_with(&self.shown) {
            return Err(format!(
                "a reader was shown something else before the kill: {}",
                first_difference(&self.shown, rest)
            ));
        }
        self.acknowledged.sort();
        let mut promised = self.acknowledged.iter().map(|(_, id)| *id).peekable();
        let mut before = None;
        for (offset, id) in &self.acknowledged {
            if before == Some(offset) {
                return Err(format!("append {id:x} has the offset {offset} of another"));
            }
            before = Some(offset);
        }
        for id in rest {
            if promised.next_if_eq(id).is_none() && !self.unanswered.remove(id) {
                return Err(match promised.peek() {
                    Some(due) => format!("append {id:x} where acknowledged {due:x} should be"),
                    None => format!("append {id:x} is there twice, or was refused"),
                });
            }
        }
        if let Some(lost) = promised.next() {
            return Err(format!("append {lost:x} was acknowledged and is lost"));
        }
        *self = Log { settled: observed, settled_end: Some(end), ..Log::default() };
        Ok(())
    }
}

fn first_difference(expected: &[AppendId], observed: &[AppendId]) -> Violation {
    let position = expected.iter().zip(observed).take_while(|(a, b)| a == b).count();
    let show = |found: Option<&AppendId>| {
        found.map_or_else(|| "nothing".to_owned(), |id| format!("append {id:x}"))
    };
    let (expected, observed) = (show(expected.get(position)), show(observed.get(position)));
    format!("at position {position} there was {expected}, now there is {observed}")
}

#[cfg(test)]
mod tests;
