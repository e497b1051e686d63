//! The whole path in one process: a webhook goes in and its effect is applied exactly once, against simulated destinations
//! that fail.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod access;
mod admin_openapi;
mod alerts;
mod api;
mod approvals;
mod backlogs;
mod batches;
mod bound;
mod budget;
mod connectors;
mod contacts;
mod crash;
mod declared;
mod declared_batches;
mod drift;
mod effects;
mod enrich;
mod event_edits;
mod example_destinations;
mod failure_groups;
mod failure_rules;
mod feed;
mod finding;
mod fixture;
mod geo_database;
mod guard_fixture;
mod history;
mod identity_lookups;
#[path = "../intake/vendor/install.rs"]
mod install;
mod intake;
mod late_identity;
mod messages;
mod notify;
mod one_person;
mod operating;
mod personal_data;
mod playbook;
mod policies;
mod prometheus;
mod recovery;
mod replays;
mod responses;
mod safe_mode;
mod shadow;
mod steps;
mod straggler;
mod strangers;
mod throttled_partner;
mod traces;
mod transfer;
mod transfer_order;
mod trials;
mod tutorial;
mod urls;
mod waits;
mod wrong_clock;
