//! Shutdown signals: SIGINT and SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{CliError, exit};

/// Receives signals from its creation on.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Requires a Tokio runtime.
    pub fn listen() -> Result<Stop, CliError> {
        Ok(Stop { interrupt: heard(SignalKind::interrupt())?, terminate: heard(SignalKind::terminate())? })
    }

    /// Waits for a signal.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Registers a signal handler.
pub(super) fn heard(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|error| CliError::new(exit::UNAVAILABLE, format!("no signals: {error}")))
}
