//! Triggers: which changes of documents a webhook is called for, and what it is sent.

pub mod token;
