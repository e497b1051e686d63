//! Observe: metrics, logs and traces.
//!
//! In: calls from every component.
//! Out: metrics for Prometheus, log lines, spans for a receiver of OpenTelemetry.
//! Touches: no other component.
//! Never: decides anything.
//! If the process dies here: some log lines, some spans and the counts since the start are lost; the ledger is authoritative.

pub(crate) mod alert_rules;
mod event_metrics;
mod gate_levels;
mod handles;
mod history;
pub mod log;
pub(crate) mod metric_table;
pub(crate) mod metrics;
mod stages;
pub(crate) mod traces;

pub(crate) use metrics::Metrics;
