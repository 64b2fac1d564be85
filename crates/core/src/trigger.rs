//! Triggers: which changes of documents a webhook is called for, and what it is sent.
//!
//! ```text
//! definition.rs   what an operator writes: parsed, patched, printed
//! glob.rs         which collections and paths it is for
//! matching.rs     whether a change is one of those that it is for, and why not
//! deployment.rs   which version of it is in force, for which documents
//! rollout.rs      a share of the documents, and the objective that it has to keep to
//! dry_run.rs      what it would have sent
//! transform.rs    which fields of the documents are sent
//! payload.rs      the body and the headers
//! signature.rs    `X-Syntrix-Signature`, and its verification
//! secret.rs       which secrets sign, while one takes over from another
//! grant.rs        what the token in the payload allows
//! token.rs        the token
//! ```

mod changed;
pub mod definition;
pub mod deployment;
pub mod dry_run;
pub mod duration;
pub mod glob;
pub mod grant;
pub mod limits;
pub mod matching;
pub mod message;
pub mod name;
pub mod payload;
pub mod rollout;
pub mod secret;
pub mod signature;
pub mod token;
pub mod transform;

pub use definition::Definition;
pub use name::{SecretRef, TriggerId};

use crate::delivery::hook::FaceId;

/// A trigger is a hook of the face of changes of documents.
pub const FACE: FaceId = crate::document::change::FACE;
