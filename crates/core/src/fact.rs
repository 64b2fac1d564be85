//! Facts: what is said about entities, who may read it, and who is told.
//!
//! A fact is one value of one relation of an entity, in a scope and perhaps in a garden; it is never
//! changed, only followed by others. Who is subscribed is asked for their rights again at every
//! delivery: first for the token, then for the key and the garden, and only then is anything read.

pub mod access;
pub mod card;
pub mod cursor;
pub mod envelope;
pub mod garden;
pub mod hlc;
pub mod limits;
pub mod name;
pub mod principal;
pub mod slot;
pub mod statement;
pub mod subscription;
pub mod target;
pub mod token;
pub mod value;
pub mod wake;

pub use hlc::Hlc;
pub use name::{EntityUri, Scope};
pub use statement::{Fact, FactNo};
pub use value::FactValue;

use crate::delivery::hook::FaceId;

/// The face of facts.
pub const FACE: FaceId = FaceId(0x07);
