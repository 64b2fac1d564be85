//! Facts: what is said about entities, who may read it, and who is told.
//!
//! ```text
//! queries       what faces ask
//! assert        a fact is written: with its contradiction, its copy and its events, in one batch
//! card          a card is made anew
//! publish       a change is an event: who it is for, and its copy for those who read the scope
//! garden        gardens, and who belongs to them
//! token         capability tokens
//! subscription  who is subscribed, and who no longer is
//! index         what memory knows, for decisions
//! gate          who may be told, at one place of the log; face: facts are a source of deliveries
//! content       what an event says
//! page          facts, page by page, as far as somebody may read them
//! replay        the events of a subscription once more, through the same gate
//! purge         what a deleted garden has left goes
//! ```

pub mod assert;
pub mod card;
pub mod error;
pub mod face;
pub mod garden;
pub mod index;
pub mod limits;
pub mod page;
pub mod replay;
pub mod subscription;
pub mod token;

mod audit;
mod content;
mod gate;
mod publish;
mod purge;
mod queries;
mod show;
#[cfg(test)]
mod tests;
mod txn;

pub use assert::AssertFact;
pub use error::{FactError, FactRejection};
pub use face::read_spec;
pub use page::{FactFilter, FactPage};
pub use queries::{CreatedSubscription, FactCaller};
pub use replay::ReplayPage;
pub use show::{GardenView, MemberView, SubscriptionPage, SubscriptionView};
