//! Stage: what a rehearsal needs: a node as a process of its own, a configuration, senders and a look at the books.
//!
//! In: the settings of a bench, a chaos run or a demo.
//! Out: a node that runs, and what it says about itself.
//! Touches: files in a temporary directory; listeners on loopback.
//! Never: anything but this machine; a path that production takes.
//! If the process dies here: its child may live on, in a temporary directory that nobody else uses.

mod api;
mod child;
mod leads;
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
    Start(#[from] crate::run::StartError),
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
