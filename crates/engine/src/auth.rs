//! Who may ask for what: API keys, and the server's own.

pub mod keys;
pub mod server_keys;

#[cfg(test)]
mod tests;

pub use keys::{ActiveKey, KeyError, KeyRejection};
