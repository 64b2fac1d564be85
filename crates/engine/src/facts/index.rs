//! What memory knows of facts, for decisions: who is subscribed to what, which gardens there are, and
//! who holds which token.

mod garden;
mod subscription;
mod token;

pub use garden::GardenIndex;
pub use subscription::SubscriptionIndex;
pub(crate) use subscription::{EventQuery, matching};
pub use token::TokenIndex;
