//! What stands between an event and a customer: messages without gaps, policies, approvals and safe mode. The whole path, with
//! simulators that count what really happened.

#![allow(clippy::unwrap_used)]

mod approvals;
#[path = "../spine/fixture.rs"]
#[allow(dead_code)]
mod fixture;
mod messages;
mod policies;
mod safe_mode;
mod stage;
