//! Who may ask for what: API keys, and the server's own.

pub mod keys;
pub mod server_keys;

pub use keys::{KeyError, KeyRejection};
