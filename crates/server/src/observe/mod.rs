//! Seeing: metrics and logs.
//!
//! In: calls from every room.
//! Out: numbers for Prometheus, lines for the log.
//! Touches: nothing of ours.
//! Never: decides anything.
//! If the process dies here: a few lines and the counts since the start are gone; the ledger has the truth.

pub mod log;
pub mod metrics;

pub use metrics::Metrics;
