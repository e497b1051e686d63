//! Intake of a running node: bodies, batches, credentials, limits, its OpenAPI description, and every supported sender.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

#[path = "../end_to_end/fixture.rs"]
#[allow(dead_code, reason = "shared with the end-to-end tests")]
mod fixture;

mod admission;
mod batches;
mod bodies;
mod credentials;
mod keys;
mod openapi;
mod presets;
mod replays;
mod senders;
mod vendor_signers;

#[path = "vendor/install.rs"]
mod install;
