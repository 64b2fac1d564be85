//! Ending a stream.

use reveille_core::stream::Rejected;
use reveille_core::stream::delete::delete;
use reveille_core::{StreamPath, Tenant};

use super::{Answer, Decided};
use crate::txn::Txn;

pub(super) fn decide(txn: &mut Txn<'_>, tenant: &Tenant, path: &StreamPath) -> Decided {
    let Some(head) = txn.live_head(tenant, path)? else {
        return Ok(Err(Rejected::NotFound.into()));
    };
    match delete(&head) {
        Err(rejected) => Ok(Err(rejected.into())),
        Ok(deletion) => {
            txn.end(tenant, path, &head, deletion);
            Ok(Ok(Answer::Done))
        }
    }
}
