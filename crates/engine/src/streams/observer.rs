//! Who is told in the step that changes a stream: whoever was registered, without streams knowing
//! who that is.

use reveille_core::stream::Head;
use reveille_core::{Offset, StreamPath, Tenant};
use reveille_kernel::txn::ReadError;
use reveille_schema::keys::ConsumerKey;

use crate::app::{Part, Txn};

/// A stream that has grown or begun.
#[derive(Debug, Clone, Copy)]
pub struct Growth<'a> {
    pub tenant: &'a Tenant,
    pub path: &'a StreamPath,
    /// As it is now.
    pub head: &'a Head,
    /// The tail that it had; `None` if it has begun.
    pub before: Option<Offset>,
    /// The consumer whose own doing this is.
    pub author: Option<&'a ConsumerKey>,
}

/// Somebody who must know what becomes of streams, in the very step that decides it.
pub trait StreamObserver: Send + Sync {
    /// A stream has grown, or has begun with something in it.
    fn grown(&self, txn: &mut Txn<'_>, growth: &Growth<'_>) -> Result<(), ReadError>;

    /// Whether somebody waits for a stream at this path, where there is none so far.
    fn is_awaited(
        &self,
        txn: &mut Txn<'_>,
        tenant: &Tenant,
        path: &StreamPath,
    ) -> Result<bool, ReadError>;

    /// A stream has ended, although it may be kept for its forks.
    fn ended(&self, txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath, head: &Head);
}

/// All of them.
#[derive(Default)]
pub struct StreamObservers(pub Vec<Box<dyn StreamObserver>>);

impl Part for StreamObservers {}

impl StreamObservers {
    pub(crate) fn of<'a>(txn: &Txn<'a>) -> &'a [Box<dyn StreamObserver>] {
        &txn.domains().part::<StreamObservers>().0
    }
}
