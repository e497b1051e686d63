//! What a node keeps up by itself: retention, clock, history, budgets and keys.

use std::sync::Arc;

use sluice_domain::call_budget::BudgetCharge;
use sluice_domain::history::recorder::Point;
use sluice_domain::job::Term;
use sluice_domain::ledger_clock::ClockRecord;
use sluice_domain::time::Time;

use crate::seal::RootKey;

/// Removes expired rows: at most `rows_max` of each kind.
#[derive(Clone, Debug)]
pub struct Prune {
    /// Bodies of events accepted before this time that have no live, dead or unknown job.
    pub bodies_before: Time,
    /// Events accepted before this time whose key has expired and that have no live, dead or unknown job.
    pub events_before: Time,
    pub rows_max: u32,
    pub at: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruned {
    pub rows: u64,
    /// Whether another slice may find more.
    pub more: bool,
}

/// Stores the state of the ledger's clock.
#[derive(Clone, Debug)]
pub struct KeepClock {
    pub record: ClockRecord,
    /// Set if an operator has confirmed the wall clock.
    pub confirmed: Option<ClockConfirmation>,
}

/// Charges calls of the budget of a destination, or only reads its rows. A repeat changes nothing.
#[derive(Clone, Debug)]
pub struct ChargeCalls {
    pub destination: Arc<str>,
    pub charge: BudgetCharge,
}

/// A minute of the history. Counters of the ledger are added by the verb itself.
#[derive(Clone, Debug)]
pub struct RecordHistory {
    /// The term and the minute together never go back: a repeat writes nothing.
    pub term: Term,
    /// Start of the minute.
    pub minute: Time,
    /// What the node has observed.
    pub points: Vec<Point>,
    /// Removes the intervals that have expired by this time. `None` while the wall clock is in doubt.
    pub expire_at: Option<Time>,
}

/// An operator states that the wall clock is right.
#[derive(Clone, Debug)]
pub struct ClockConfirmation {
    pub actor: String,
    pub reason: String,
    /// The ledger's time before and after.
    pub before: Time,
    pub at: Time,
}

impl ClockConfirmation {
    /// As in the audit trail.
    pub(crate) fn detail(&self) -> String {
        format!("from {} to {}: {}", self.before, self.at, self.reason)
    }
}

/// Changes the keys that seal the ledger. Payloads are not touched.
#[derive(Clone, Debug)]
pub(crate) struct Rotate {
    pub rotation: Rotation,
    pub actor: String,
    pub at: Time,
}

#[derive(Clone, Debug)]
pub(crate) enum Rotation {
    /// Wraps the tenant keys with this root key.
    Root(RootKey),
    /// Seals new data with a new tenant key.
    Tenant,
    /// Wraps the keys of the next contacts with the newest tenant key.
    Contacts { rows_max: u32 },
}
