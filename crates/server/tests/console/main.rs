//! The console: over HTTP as a browser would use it, and in a real browser where one is installed.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod browser;
mod busy;
mod certified_provider;
#[path = "../end_to_end/fixture.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod fixture;
mod hostile;
mod in_browser;
mod journeys;
mod openid;
mod openid_in_browser;
mod pages;
mod roles;
#[path = "../../../simulator/tests/support/vendor.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod vendor;
mod visitor;
