//! Alerts: conditions of a node that a person must know of, and the state of each.
//!
//! [`conditions`](signal::conditions) says what is wrong now. [`step`](state::step) turns that into states: an alert fires once its
//! condition has held for its hold time, and recovers once the condition has been gone for a while. Every change of state is
//! notified once, by an event that playbooks handle.

pub mod kind;
pub mod signal;
pub mod silence;
pub mod state;

pub use kind::{AlertKind, Severity};
pub use signal::{Condition, Signals};
pub use state::{Alert, Phase};

/// Type of the events that notify changes; a playbook with `on: alert.changed` sends them.
pub const EVENT_TYPE: &str = "alert.changed";
/// Source of these events.
pub const SOURCE: &str = "alerts";
