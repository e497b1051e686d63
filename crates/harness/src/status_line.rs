//! One line that says how it goes: rewritten in place on a terminal, a line each elsewhere.

use std::io::{self, IsTerminal, Write};

/// Where progress is shown: on standard error, so that standard output holds the result alone.
#[derive(Debug)]
pub struct StatusLine {
    terminal: bool,
    quiet: bool,
}

impl StatusLine {
    /// Shows progress.
    pub fn new() -> StatusLine {
        StatusLine { terminal: io::stderr().is_terminal(), quiet: false }
    }

    /// Shows nothing.
    pub fn quiet() -> StatusLine {
        StatusLine { terminal: false, quiet: true }
    }

    /// Shows how it goes now.
    pub fn show(&self, text: &str) {
        if self.quiet {
            return;
        }
        // Nobody has to see it, so nothing is done about an error.
        let _ = if self.terminal { write!(io::stderr(), "\r\x1b[K{text}") } else { writeln!(io::stderr(), "{text}") };
        let _ = io::stderr().flush();
    }

    /// Makes room for what follows.
    pub fn clear(&self) {
        if self.terminal && !self.quiet {
            let _ = write!(io::stderr(), "\r\x1b[K");
            let _ = io::stderr().flush();
        }
    }
}

impl Default for StatusLine {
    fn default() -> StatusLine {
        StatusLine::new()
    }
}
