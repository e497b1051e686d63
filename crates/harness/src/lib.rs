//! Benchmarks, chaos runs (fault injection), the demo and the simulation, with their commands.
//!
//! In: the settings of a benchmark, a chaos run or a demo.
//! Out: a report.
//! Touches: files in a temporary directory; listeners on loopback; nodes as child processes.
//! Never: another machine; code that a production node needs.
//! If the process dies here: its child processes may survive, in a temporary directory of their own.

mod api;
mod bench;
pub mod chaos;
mod child;
pub mod cli;
mod demo;
mod leads;
mod shifted_clock;
mod status_line;

use std::io;
use std::net::SocketAddr;

pub(crate) use api::Api;
pub(crate) use child::{Memory, NodeProcess, StartOptions};
pub(crate) use leads::{Leads, LeadsTo, Sender};
pub use status_line::StatusLine;

/// Loopback with a port chosen by the system.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Why a benchmark, a chaos run or a demo could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file, process or connection failed.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error(transparent)]
    Start(#[from] sluice_server::run::StartError),
    #[error(transparent)]
    Ledger(#[from] sluice_ledger::Error),
    /// Anything else; the message says what is wrong.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// Maps an I/O error; `what` names the file, process or connection.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
