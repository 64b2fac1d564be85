//! Outbound HTTP: which addresses may be called, and the door through which calls leave.
//!
//! So far only the door and the guard are here; the client behind them comes with the first
//! feature that calls somebody.

pub mod address;
pub mod courier;
