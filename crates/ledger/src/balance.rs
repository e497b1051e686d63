//! The balance in parts: what became of the events of a range, by day and source.

use std::collections::BTreeMap;

use crate::record::EventSeq;

/// What has become of an event, for the balance. The worst of its jobs decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BalanceOutcome {
    /// Nothing had to be done.
    Noop,
    Done,
    Dropped,
    Waiting,
    Unknown,
    Dead,
}

/// A part of the balance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BalancePart {
    /// Number of events by day (`2026-11-15`), source and outcome.
    pub counts: BTreeMap<(String, String, BalanceOutcome), u64>,
    /// The last event that was looked at.
    pub looked_until: EventSeq,
}
