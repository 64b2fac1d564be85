//! Ending a stream.

use reveille_core::stream::Rejected;
use reveille_core::stream::delete::delete;
use reveille_core::{StreamPath, Tenant};
use reveille_kernel::command::{Command, Decision};

use super::txn::StreamTxn;
use crate::app::{App, Txn};

/// Ends a stream.
#[derive(Debug, Clone)]
pub struct DeleteStream {
    pub tenant: Tenant,
    pub path: StreamPath,
}

impl Command<App> for DeleteStream {
    type Answer = ();
    type Rejection = Rejected;

    fn decide(&self, txn: &mut Txn<'_>) -> Decision<(), Rejected> {
        let DeleteStream { tenant, path } = self;
        let Some(head) = txn.live_head(tenant, path)? else {
            return Ok(Err(Rejected::NotFound));
        };
        Ok(delete(&head).map(|deletion| txn.end_stream(tenant, path, &head, deletion)))
    }
}
