//! Progress line: rewritten in place on a terminal, one line per update elsewhere.

use std::io::{self, IsTerminal, Write};

/// Writes progress to standard error, so that standard output holds only the result.
#[derive(Debug)]
pub struct StatusLine {
    terminal: bool,
    quiet: bool,
}

impl StatusLine {
    pub fn new() -> StatusLine {
        StatusLine { terminal: io::stderr().is_terminal(), quiet: false }
    }

    /// Discards progress.
    pub fn quiet() -> StatusLine {
        StatusLine { terminal: false, quiet: true }
    }

    pub fn show(&self, text: &str) {
        if self.quiet {
            return;
        }
        // Progress is optional: errors are ignored.
        let _ = if self.terminal { write!(io::stderr(), "\r\x1b[K{text}") } else { writeln!(io::stderr(), "{text}") };
        let _ = io::stderr().flush();
    }

    /// Erases the line.
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
