//! Outbound HTTP: where requests may go, the door through which they leave, the client behind it.
//!
//! ```text
//!  Destination   a URL that was checked against the Rules when somebody gave it to us
//!  HttpCourier   takes an idle connection of the pool, or has the connector open one
//!    Resolve     a name becomes addresses: the hosts file, a cache, the name servers
//!    connector   asks the guard about each address, connects to that same address, shakes hands
//!    connection  a request goes out, a bounded answer comes back
//! ```
//!
//! What is deliberately absent: redirects, proxies, cookies, decompression and clocks.
//! The caller has the deadline, and dropping the future closes whatever it had open; what has a
//! limit of its own (a lookup, an address that does not answer, a body) has it from `timer.rs`.

pub mod address;
pub mod destination;
mod network;

pub mod courier;

pub mod client;
mod connection;
mod connector;
mod pool;
pub mod resolve;
mod shortage;
mod timer;
mod transport;
