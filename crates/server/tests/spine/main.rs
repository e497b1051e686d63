//! The whole path in one process: a webhook goes in, an effect comes out once, and nothing is lost in between.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod bound;
mod crash;
mod effects;
mod fixture;
mod intake;
mod night;
mod operating;
mod playbook;
mod recovery;
mod steps;
mod tutorial;
