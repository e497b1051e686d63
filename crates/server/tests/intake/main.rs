//! What requests are made of, at a real listener: body forms, encodings, batches, shapes, and the stories that the keys are for.

#[path = "../spine/fixture.rs"]
#[allow(dead_code, reason = "each test file uses another part")]
mod fixture;

mod admission;
mod batches;
mod bodies;
mod doors;
mod stories;
