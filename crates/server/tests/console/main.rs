//! The console: over HTTP as a browser would use it, and in a real browser where one is installed.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

mod browser;
#[path = "../end_to_end/fixture.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod fixture;
mod in_browser;
mod pages;
mod roles;
mod visitor;
