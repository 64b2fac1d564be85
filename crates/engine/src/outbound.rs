//! What making calls takes, whoever they are to.

use std::sync::Arc;

use reveille_core::subscription::Timings;
use reveille_deliver::destination::Rules;
use reveille_kernel::doors::Entropy;

use crate::complaints::Complaints;
use crate::encoder::{DeliveryEncoders, Encoder, SecretSource};
use crate::keyring::Keyring;

/// What attempts of all kinds share.
pub(crate) struct OutboundContext {
    /// Says what is in wakes.
    pub encoder: Arc<dyn Encoder>,
    /// Say what is in deliveries.
    pub delivery_encoders: DeliveryEncoders,
    /// Signs them.
    pub keyring: Arc<Keyring>,
    /// Secrets of tenants that do, by name.
    pub secrets: Arc<dyn SecretSource>,
    /// Where they may go.
    pub rules: Rules,
    /// How long they may take.
    pub timings: Timings,
    pub entropy: Arc<dyn Entropy>,
    pub complaints: Complaints,
}
