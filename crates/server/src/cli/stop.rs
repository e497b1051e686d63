//! Being asked to stop: by Ctrl-C, or by whoever ends the process.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{CliError, exit};

/// Hears of it from the moment that it is made.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Within a runtime.
    pub fn listen() -> Result<Stop, CliError> {
        Ok(Stop { interrupt: heard(SignalKind::interrupt())?, terminate: heard(SignalKind::terminate())? })
    }

    /// Waits until it is asked.
    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A signal that is heard from here on.
pub(super) fn heard(kind: SignalKind) -> Result<Signal, CliError> {
    signal(kind).map_err(|error| CliError::new(exit::UNAVAILABLE, format!("no signals: {error}")))
}
