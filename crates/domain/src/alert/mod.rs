//! Alerts: conditions of a node that a person must know of, and the state of each.
//!
//! [`conditions`](signal::conditions) says what is wrong now. [`step`](state::step) turns that into states: an alert fires once its
//! condition has held for its hold time, and recovers once the condition has been gone for a while. Every change of state is
//! notified once, by an event that playbooks handle: [`commands`](watch::commands) says what is written, and in which order.

pub mod digest;
pub mod kind;
pub mod notice;
pub mod rules;
pub mod settings;
pub mod signal;
pub mod silence;
pub mod state;
pub mod watch;

pub use digest::DIGEST_EVENT_TYPE;
pub use kind::{AlertKind, Severity};
pub use notice::{Notice, NoticeEvent};
pub use rules::AlertRules;
pub use settings::AlertSettings;
pub use signal::{Condition, Signals};
pub use state::{Alert, Phase};

/// Type of the events that notify changes; a playbook with `on: alert.changed` sends them.
pub const EVENT_TYPE: &str = "alert.changed";
/// Types of the events that the node itself accepts.
pub const OWN_EVENT_TYPES: [&str; 3] = [EVENT_TYPE, DIGEST_EVENT_TYPE, crate::respond::EVENT_TYPE];
/// Source of these events.
pub const SOURCE: &str = "alerts";
