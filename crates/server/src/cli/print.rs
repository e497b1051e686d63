//! Output: times, counts, colours, JSON.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use serde_json::Value;
use sluice_domain::printable;

use super::{CliError, exit};

pub(super) use sluice_domain::unit::{grouped, plural};

/// Prints a text with a trailing newline. Of control characters only line breaks, tabs and colours pass. A closed pipe
/// (`| head`) is not an error.
pub fn print(text: &str) -> Result<(), CliError> {
    let text = printable::styled_lines(text);
    let mut out = anstream::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(CliError::new(exit::OK, "")),
        Err(error) => Err(CliError::new(exit::UNAVAILABLE, format!("standard output cannot be written: {error}"))),
    }
}

/// Output format of API responses.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Format {
    /// Print the JSON of the admin API
    #[arg(long)]
    pub json: bool,
}

impl Format {
    /// Deserializes the response; `None` if JSON was requested and has been printed.
    pub(super) fn read<T: serde::de::DeserializeOwned>(self, answer: &Value) -> Result<Option<T>, CliError> {
        if self.json {
            return json(answer).map(|()| None);
        }
        deserialize(answer).map(Some)
    }
}

/// Prints a value as indented JSON.
pub fn json(value: &impl Serialize) -> Result<(), CliError> {
    print(&pretty(value))
}

/// Indented JSON without raw control characters.
pub(super) fn pretty(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("\"{error}\""));
    printable::json(&text).into_owned()
}

pub(super) fn indented(text: &str, by: usize) -> String {
    text.lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}

/// Relative time: `3m ago`, `in 12s`.
pub(super) fn ago(time: &str) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(at) => distance(jiff::Timestamp::now().as_millisecond() - at.as_millisecond()),
        Err(_) => time.to_owned(),
    }
}

fn distance(milliseconds: i64) -> String {
    let seconds = milliseconds.unsigned_abs() / 1000;
    let span = match seconds {
        0 => return "now".to_owned(),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    };
    if milliseconds < 0 { format!("in {span}") } else { format!("{span} ago") }
}

/// Time to the second, with the relative time.
pub(super) fn moment(time: &str) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(at) => format!("{} ({})", at.strftime("%Y-%m-%d %H:%M:%S UTC"), ago(time)),
        Err(_) => time.to_owned(),
    }
}

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
const GREEN: Style = AnsiColor::Green.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default();
const RED: Style = AnsiColor::Red.on_default();

/// Style of a state, outcome or status.
pub(super) fn style_of(word: &str) -> Style {
    match word {
        "succeeded" | "done" | "applied" | "present" | "closed" | "accepted" => GREEN,
        "dead" | "unknown" | "reject" | "unsure" | "open" | "interrupted" | "auth" => RED,
        "retrying" | "waiting" | "retry" | "wait" | "half-open" | "paused" | "dropped" | "not_applied" | "unrouted" => {
            YELLOW
        }
        _ => Style::new(),
    }
}

/// Styled text. Print it with [`print`], which strips the style if the output is not a terminal.
pub(super) fn styled(text: &str, style: Style) -> String {
    format!("{style}{text}{style:#}")
}

pub fn heading(text: &str) -> String {
    format!("\n{}\n", styled(text, BOLD))
}

/// Dimmed hint line.
pub fn hint(text: &str) -> String {
    format!("{}\n", styled(text, DIM))
}

/// Members of responses that are shown as JSON, which escapes control characters itself.
const JSON_MEMBERS: [&str; 7] = ["after", "before", "gate", "headers", "normalized", "raw", "result"];
/// Members with texts of configuration files, which have lines.
const LINES_MEMBERS: [&str; 3] = ["files", "from", "to"];

/// Makes the texts of a response safe to show: senders and destinations wrote some of them.
fn printable_texts(value: Value) -> Value {
    fn each(value: Value, safe: fn(&str) -> std::borrow::Cow<'_, str>) -> Value {
        match value {
            Value::String(text) => Value::String(safe(&text).into_owned()),
            Value::Array(items) => items.into_iter().map(|item| each(item, safe)).collect(),
            Value::Object(members) => {
                let member = |(name, value): (String, Value)| {
                    let value = match name.as_str() {
                        name if JSON_MEMBERS.contains(&name) => value,
                        name if LINES_MEMBERS.contains(&name) => each(value, printable::lines),
                        _ => each(value, safe),
                    };
                    (printable::line(&name).into_owned(), value)
                };
                Value::Object(members.into_iter().map(member).collect())
            }
            other => other,
        }
    }
    each(value, printable::line)
}

/// Deserializes a response of the node, with texts that are safe to show.
pub(super) fn deserialize<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, CliError> {
    serde_json::from_value(printable_texts(value.clone())).map_err(|error| {
        let message = format!(
            "the response of the node cannot be read ({error}); its version may differ; --json prints it as is"
        );
        CliError::new(exit::UNAVAILABLE, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_response_are_made_safe_and_json_stays_exact() {
        let answer = serde_json::json!({
            "message": "a\u{1b}[2J\nb", "raw": { "x": "\u{1b}" }, "files": { "a.yml": "a\nb\r" }, "list": ["\r"],
        });
        let shown = printable_texts(answer.clone());
        assert_eq!(shown["message"], "a\\x1b[2J\\nb");
        assert_eq!(shown["raw"], answer["raw"]);
        assert_eq!((&shown["files"]["a.yml"], &shown["list"][0]), (&"a\nb\\r".into(), &"\\r".into()));
    }

    #[test]
    fn relative_times_are_short() {
        for (milliseconds, text) in [
            (0, "now"),
            (-900, "now"),
            (1_000, "1s ago"),
            (59_999, "59s ago"),
            (60_000, "1m ago"),
            (7_200_000, "2h ago"),
            (172_800_000, "2d ago"),
            (-12_000, "in 12s"),
        ] {
            assert_eq!(distance(milliseconds), text);
        }
    }
}
