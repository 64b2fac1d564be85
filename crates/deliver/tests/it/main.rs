//! Outbound HTTP through real loopback sockets.
