//! Commands: what can be asked of a partition. Each is one pure decision over the keys it reads.

use reveille_core::Millis;
use reveille_core::trace::Trace;

use crate::domains::Domains;
use crate::error::{Error, Never};
use crate::keys;
use crate::txn::{ReadError, Txn};

/// What a decision comes to, unless something must be read for it first.
pub type Decision<A, R> = Result<Result<A, R>, ReadError>;

/// What a command comes to.
pub type Outcome<A, R> = Result<A, Error<R>>;

/// The bytes that any command may add to a batch.
const BASE_WEIGHT: usize = 512;

/// A request to a partition.
///
/// It is decided under the partition's lock, perhaps several times until everything that it reads
/// is at hand: `decide` reads no clock, waits for nothing, and keeps nothing of an attempt that
/// failed. A rejection changes nothing.
pub trait Command<D: Domains>: Send + Sync {
    type Answer: Send + 'static;
    type Rejection: Send + 'static;

    fn decide(&self, txn: &mut Txn<'_, D>) -> Decision<Self::Answer, Self::Rejection>;

    /// The bytes that it adds to a batch beside a few hundred, roughly.
    fn weight(&self) -> usize {
        0
    }

    /// Whether it is refused while the disk is nearly full. Whatever frees room, ends something or
    /// lets work that was begun go on is not.
    fn needs_room(&self) -> bool {
        false
    }

    /// Whether somebody waits for it to become durable, given what it has brought about.
    fn is_urgent(&self, _effects: &[D::Effect]) -> bool {
        true
    }

    /// The time that it was seen to be due at: a clock that was set back does not make it early.
    fn not_before(&self) -> Millis {
        Millis(0)
    }

    /// What it is rejected with if it is still not decided now: asked before each attempt. Once it
    /// is decided it is waited for, however long that takes.
    fn too_late(&self, _now: Millis) -> Option<Self::Rejection> {
        None
    }

    /// The trace that it is a part of.
    fn trace(&self) -> Option<Trace> {
        None
    }

    /// The bytes that there must be room for in a batch.
    fn total_weight(&self) -> usize {
        BASE_WEIGHT + self.weight()
    }
}

/// A command as a part of a trace: wakes that it causes remember that.
#[derive(Debug, Clone)]
pub struct Traced<C> {
    pub trace: Option<Trace>,
    pub command: C,
}

impl<D: Domains, C: Command<D>> Command<D> for Traced<C> {
    type Answer = C::Answer;
    type Rejection = C::Rejection;

    fn decide(&self, txn: &mut Txn<'_, D>) -> Decision<C::Answer, C::Rejection> {
        self.command.decide(txn)
    }

    fn weight(&self) -> usize {
        self.command.weight()
    }

    fn needs_room(&self) -> bool {
        self.command.needs_room()
    }

    fn is_urgent(&self, effects: &[D::Effect]) -> bool {
        self.command.is_urgent(effects)
    }

    fn not_before(&self) -> Millis {
        self.command.not_before()
    }

    fn too_late(&self, now: Millis) -> Option<C::Rejection> {
        self.command.too_late(now)
    }

    fn trace(&self) -> Option<Trace> {
        self.trace
    }
}

/// Does the pipeline work? Writes something of no consequence, so that the whole way of a write is
/// walked.
#[derive(Debug, Clone, Copy)]
pub struct ProbePartition;

impl<D: Domains> Command<D> for ProbePartition {
    type Answer = ();
    type Rejection = Never;

    fn decide(&self, txn: &mut Txn<'_, D>) -> Decision<(), Never> {
        let now = keys::encode_u64(txn.now().0);
        txn.set(keys::probe(), now);
        Ok(Ok(()))
    }

    fn needs_room(&self) -> bool {
        true
    }
}
