//! What requests are made of, at a real listener: body forms, encodings, batches, shapes, and the stories that the keys are for.

#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

#[path = "../spine/fixture.rs"]
#[allow(dead_code, reason = "each test file uses another part")]
mod fixture;

mod admission;
mod batches;
mod bodies;
mod doors;
mod stories;
