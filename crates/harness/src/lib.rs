//! Benchmarks, chaos runs (fault injection), the demo and the simulation, with their commands.
//!
//! In: the settings of a benchmark, a chaos run or a demo.
//! Out: a report.
//! Touches: files in a temporary directory; listeners on loopback; nodes as child processes.
//! Never: another machine; code that a production node needs.
//! If the process dies here: its child processes may survive, in a temporary directory of their own.

mod api;
pub mod bench;
pub mod chaos;
mod child;
pub mod cli;
pub mod demo;
mod leads;
mod shifted_clock;
mod status_line;

use std::io;
use std::net::SocketAddr;

pub use api::Api;
pub use child::{Child, Memory};
pub use leads::{Leads, LeadsTo, Sender};
pub use status_line::StatusLine;

/// Loopback, with a port that the system chooses.
pub const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Why a rehearsal could not be held.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, a process or a connection.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The node did not start.
    #[error(transparent)]
    Start(#[from] sluice_server::run::StartError),
    /// The ledger said no.
    #[error(transparent)]
    Ledger(#[from] sluice_ledger::Error),
    /// Something is not as it must be; the sentence says what.
    #[error("{0}")]
    Wrong(String),
}

impl Error {
    /// Something failed while this was tried.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
