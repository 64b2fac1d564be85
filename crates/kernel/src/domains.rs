//! What a kernel runs without knowing it: the domains of an engine, taken together.
//!
//! Here is what they keep. What they do is asked for where it is done: effects by the committer
//! ([`EffectHandler`](crate::committer::EffectHandler)), timers by the due index
//! ([`TimerHandler`](crate::timers::TimerHandler)), calls by the sender
//! ([`AttemptHandler`](crate::outbound::AttemptHandler)).

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::key_range::above;
use reveille_store::state::Reader;

use crate::error::Damaged;
use crate::outbox::{Attempt, Outbox};

/// The domains of an engine, and their memory beside the state.
///
/// Whatever is in memory follows the log: [`Domains::Index`] is a fold over what was decided, for
/// decisions alone, and [`Domains::follow`] is told what became durable, for everybody else. Both
/// are fed the same way when a partition opens, on its writer, and on whoever only follows it.
pub trait Domains: Sized + Send + Sync + 'static {
    /// What decisions know without reading: a fold over the writes of all decisions.
    type Index: Index;
    /// What is to happen once a batch is durable.
    type Effect: Send + 'static;
    /// What one decision gathers before it is written, if anything.
    type Scratch: Scratch;
    /// An outbound call that is to be made.
    type Attempt: Attempt;

    /// An index of nothing.
    fn new_index(&self) -> Self::Index;

    /// Where attempts wait, with the limits of their sources as far as these are known.
    fn outbox(&self) -> Arc<Outbox<Self::Attempt>> {
        Arc::default()
    }

    /// The keys that [`Domains::follow`] is told of: each from the first to before the second.
    fn ranges(&self) -> Vec<(Bytes, Bytes)>;

    /// Whether it wants to know of keys with this tag.
    fn follows(&self, tag: u8) -> bool;

    /// A key has become durable with this value, or was removed. Called in the order of the log,
    /// by one thread.
    fn follow(&self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged>;

    /// Lets go of what nobody needs any more; called now and then.
    fn sweep(&self);
}

/// What one decision gathers before it is written.
pub trait Scratch: Default {
    /// What is to be written of it.
    fn writes(self) -> Vec<(Bytes, Bytes)>;
}

impl Scratch for () {
    fn writes(self) -> Vec<(Bytes, Bytes)> {
        Vec::new()
    }
}

/// What memory knows of a part of the state: a fold over its writes, in their order.
pub trait Index: Send + 'static {
    /// The keys that it folds: each from the first to before the second.
    fn ranges(&self) -> Vec<(Bytes, Bytes)>;

    /// Whether it folds keys with this tag.
    fn follows(&self, tag: u8) -> bool;

    /// A key has this value from now on, or was removed.
    fn follow(&mut self, key: &Bytes, value: Option<&Bytes>) -> Result<(), Damaged>;
}

/// Pairs that are read at once when memory is filled from the state.
const LOAD_SLICE: usize = 1_024;

/// Folds everything that is stored within these ranges.
pub(crate) fn fold(
    reader: &Reader,
    ranges: Vec<(Bytes, Bytes)>,
    mut follow: impl FnMut(&Bytes, Option<&Bytes>) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    for (from, to) in ranges {
        let mut pages = Pages::new(from, to, LOAD_SLICE);
        while let Some(pairs) = pages.next(reader)? {
            for (key, value) in &pairs {
                follow(key, Some(value))?;
            }
        }
    }
    Ok(())
}

/// An index over what is stored.
pub(crate) fn load<D: Domains>(reader: &Reader, domains: &D) -> Result<D::Index, Damaged> {
    let mut index = domains.new_index();
    fold(reader, index.ranges(), |key, value| index.follow(key, value))?;
    Ok(index)
}

/// The pairs of a range, page by page.
pub struct Pages {
    from: Bytes,
    to: Bytes,
    limit: usize,
    done: bool,
}

impl Pages {
    pub fn new(from: Bytes, to: Bytes, limit: usize) -> Pages {
        Pages { from, to, limit, done: false }
    }

    /// The next page, which is not empty; `None` after the last.
    pub fn next(&mut self, reader: &Reader) -> Result<Option<Vec<(Bytes, Bytes)>>, Damaged> {
        if self.done {
            return Ok(None);
        }
        let pairs = reader.range(&self.from, &self.to, self.limit)?;
        self.done = pairs.len() < self.limit;
        match pairs.last() {
            Some((last, _)) => {
                self.from = above(last);
                Ok(Some(pairs))
            }
            None => Ok(None),
        }
    }
}
