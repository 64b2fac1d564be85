//! What the events face and operators both say of a delivery.

use reveille_core::delivery::hook::Standing;

/// The status of a delivery, as the world knows it.
pub(crate) fn status_label(standing: Standing) -> &'static str {
    match standing {
        Standing::Pending => "pending",
        Standing::Failed => "failed",
        Standing::Delivered => "delivered",
        Standing::Dead => "dead",
        Standing::Dropped => "dropped",
    }
}
