//! Observe: metrics and logs.
//!
//! In: calls from every component.
//! Out: metrics for Prometheus, log lines.
//! Touches: no other component.
//! Never: decides anything.
//! If the process dies here: some log lines and the counts since the start are lost; the ledger is authoritative.

mod history;
pub mod log;
pub(crate) mod metrics;

pub(crate) use metrics::Metrics;
