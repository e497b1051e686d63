//! The whole path in one process: a webhook goes in and its effect is applied exactly once, against simulated destinations
//! that fail.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod access;
mod alerts;
mod approvals;
mod backlogs;
mod batches;
mod bound;
mod connectors;
mod contacts;
mod crash;
mod declared;
mod effects;
mod finding;
mod fixture;
mod guard_fixture;
mod history;
mod intake;
mod late_identity;
mod messages;
mod operating;
mod playbook;
mod policies;
mod prometheus;
mod recovery;
mod replays;
mod safe_mode;
mod steps;
mod straggler;
mod strangers;
mod throttled_partner;
mod tutorial;
mod urls;
mod waits;
mod wrong_clock;
