//! Ending a stream.

use reveille_core::stream::Rejected;
use reveille_core::stream::delete::delete;
use reveille_core::{StreamPath, Tenant};

use super::Answer;
use crate::txn::{Missing, Txn};

pub(super) fn decide(
    txn: &mut Txn<'_>,
    tenant: &Tenant,
    path: &StreamPath,
) -> Result<Result<Answer, Rejected>, Missing> {
    let Some(head) = txn.live_head(tenant, path)? else {
        return Ok(Err(Rejected::NotFound));
    };
    match delete(&head) {
        Err(rejected) => Ok(Err(rejected)),
        Ok(deletion) => {
            txn.end(tenant, path, &head, deletion);
            Ok(Ok(Answer::Done))
        }
    }
}
