//! The whole path in one process: a webhook goes in, an effect comes out once, and nothing is lost in between.

mod effects;
mod fixture;
mod intake;
mod operating;
mod recovery;
