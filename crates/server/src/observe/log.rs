//! Structured logs. The writer masks email addresses and phone numbers and escapes control characters, so that callers need
//! not: a log line is one line.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};

use sluice_domain::{mask, printable};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging to standard error. `filter` has the syntax of `SLUICE_LOG`: `info`, `sluice_server=debug`.
pub fn start(format: Format, filter: &str) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let writer = Masking(io::stderr, format);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    log_panics();
    // A second call in one process (tests, the demo) has no effect.
    let _ = match format {
        Format::Text => builder.with_ansi(false).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
}

/// Logs panics as lines like any other. A panic may quote a value, so only its fixed part is logged.
fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let text = info.payload().downcast_ref::<&'static str>().copied();
        let text = text.or_else(|| info.payload().downcast_ref::<String>().map(|text| fixed_part(text)));
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
        tracing::error!(%place, backtrace, "panic: {}", text.unwrap_or_default());
    }));
}

/// A formatted message up to the value that it quotes: `expect` puts that behind a colon.
fn fixed_part(message: &str) -> &str {
    message.split([':', '`', '"']).next().unwrap_or_default()
}

/// Masks and escapes every line.
#[derive(Clone, Debug)]
pub struct Masking<M>(pub M, pub Format);

impl<'a, M: MakeWriter<'a>> MakeWriter<'a> for Masking<M> {
    type Writer = MaskedLine<M::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        MaskedLine { line: Vec::with_capacity(256), format: self.1, out: self.0.make_writer() }
    }
}

/// Buffers one line; masks and escapes it when it is complete.
#[derive(Debug)]
pub struct MaskedLine<W: Write> {
    line: Vec<u8>,
    format: Format,
    out: W,
}

impl<W: Write> Write for MaskedLine<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            let line = String::from_utf8_lossy(&self.line);
            let line = mask::text(line.strip_suffix('\n').unwrap_or(&line));
            let line = match self.format {
                Format::Text => printable::line(&line),
                Format::Json => printable::json(&line),
            };
            self.out.write_all(format!("{line}\n").as_bytes())?;
            self.line.clear();
        }
        self.out.flush()
    }
}

impl<W: Write> Drop for MaskedLine<W> {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn logs_mask_email_addresses_and_phone_numbers() {
        let captured = Captured::default();
        let writer = captured.clone();
        let subscriber =
            tracing_subscriber::fmt().json().with_writer(Masking(move || writer.clone(), Format::Json)).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(email = "ada@example.com", "called +14155550123 for ada@example.com");
        });
        let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("a***@example.com"), "{text}");
        assert!(!text.contains("ada@") && !text.contains("4155550123"), "{text}");
    }

    #[test]
    fn panic_is_logged_without_the_value_that_it_quotes() {
        assert_eq!(fixed_part("a header is text: InvalidName(\"Ada Lovelace\")"), "a header is text");
        assert_eq!(fixed_part("index out of bounds"), "index out of bounds");
    }

    #[test]
    fn log_line_cannot_be_forged_by_a_line_break_or_an_escape_sequence() {
        let captured = Captured::default();
        let writer = captured.clone();
        let writer = Masking(move || writer.clone(), Format::Text);
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(key = "a\r\n2026-11-15 ERROR forged", "type \u{1b}]0;title\u{7}\u{9b}2J\u{202e}");
        });
        let text = String::from_utf8(captured.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(!text.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
    }
}
