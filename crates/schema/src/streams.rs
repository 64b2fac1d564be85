//! Streams.
//!
//! | timer of domain `01` | subject |
//! |---|---|
//! | `01` expire | tenant, `00`, path |
//! | `02` purge | stream id `u64` |
//! | `03` release | tenant, `00`, path of the source, `00`, stream id of the fork `u64` |

#[cfg(test)]
mod tests;
mod timer;

pub use timer::StreamTimer;
