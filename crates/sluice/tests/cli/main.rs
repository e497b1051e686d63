//! The binary `sluice`: its commands without a node, against a node, and on every example. Output is compared with snapshots.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod access;
mod change;
mod clock;
mod connectors;
mod documentation;
mod event_edits;
mod examples;
mod forms;
mod guard;
mod node;
mod output;
mod simulators;
mod support;
mod terminal;
mod transfer;
mod verify;
mod watch;
mod without_node;
mod worked_examples;
