//! Makes untrusted text safe for a terminal and for text logs.
//!
//! A payload, a header, a key or the response of a destination may hold characters that move the cursor, change the title
//! or the clipboard of a terminal, forge a log line, or reorder what is shown. They are shown as visible escapes.

use std::borrow::Cow;
use std::fmt::Write;

/// Whether the character is not shown as itself: control characters of C0 and C1, DEL, line and paragraph separators, and
/// marks that change the direction of text.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text on one line.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// The text with its line breaks and tabs.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |c: char| is_unsafe(c) && !is_kept(c);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_escaped(c) => safe.push(c),
            '\n' => safe.push_str("\\n"),
            '\r' => safe.push_str("\\r"),
            '\t' => safe.push_str("\\t"),
            c if c.is_ascii() => write!(safe, "\\x{:02x}", u32::from(c)).expect("writing to a String does not fail"),
            c => write!(safe, "\\u{{{:x}}}", u32::from(c)).expect("writing to a String does not fail"),
        }
    }
    Cow::Owned(safe)
}

/// The output of a command: keeps line breaks, tabs and the colours that the command itself has set (`ESC [ … m`).
pub fn styled_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|c: char| is_unsafe(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        safe.push_str(&lines(&rest[..at]));
        let length = style_length(&rest[at..]);
        safe.push_str(if length == 0 { "\\x1b" } else { &rest[at..at + length] });
        rest = &rest[at + length.max(1)..];
    }
    safe.push_str(&lines(rest));
    Cow::Owned(safe)
}

/// Length of the style sequence at the start of the text, in bytes; 0 if there is none.
fn style_length(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\u{1b}[") else { return 0 };
    match parameters.find(|c: char| !(c.is_ascii_digit() || c == ';')) {
        Some(end) if parameters[end..].starts_with('m') => end + 3,
        _ => 0,
    }
}

/// JSON text with the unsafe characters that JSON leaves as they are written as `\u` escapes: the value stays the same. Line
/// breaks and tabs between values stay.
pub fn json(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| is_unsafe(c) && !c.is_ascii_control() || c == '\u{7f}';
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            write!(safe, "\\u{:04x}", u32::from(c)).expect("writing to a String does not fail");
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_as_escapes() {
        for (text, safe) in [
            ("plain text, ünïcode, 日本, 👩‍🚀", "plain text, ünïcode, 日本, 👩‍🚀"),
            ("\u{1b}[31mred\u{1b}]0;title\u{7}", "\\x1b[31mred\\x1b]0;title\\x07"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{9b}31m\u{7f}\u{0}", "\\u{9b}31m\\x7f\\x00"),
            ("user\u{202e}gpj.exe\u{2069}\u{2028}", "user\\u{202e}gpj.exe\\u{2069}\\u{2028}"),
        ] {
            assert_eq!(line(text), safe);
        }
        assert_eq!(lines("a\r\n\tb"), "a\\r\n\tb");
    }

    #[test]
    fn output_keeps_colours_and_nothing_else_of_a_terminal() {
        let own = "\u{1b}[1mbold\u{1b}[0m\n\u{1b}[38;5;3mx\u{1b}[m";
        assert_eq!(styled_lines(own), own);
        for (text, safe) in [
            ("\u{1b}]52;c;eA==\u{7}", "\\x1b]52;c;eA==\\x07"),
            ("\u{1b}[2J\u{1b}[H", "\\x1b[2J\\x1b[H"),
            ("\u{1b}", "\\x1b"),
            ("\u{1b}[", "\\x1b["),
            ("\u{1b}\u{1b}[0m", "\\x1b\u{1b}[0m"),
            ("a\rb\u{202e}", "a\\rb\\u{202e}"),
        ] {
            assert_eq!(styled_lines(text), safe);
        }
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "a\u{9b}": "\u{1b}[31m\u{7f}\u{202e}\n ü" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let safe = json(&text);
        assert!(safe.chars().all(|c| c == '\n' || !is_unsafe(c)), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }

    proptest::proptest! {
        #[test]
        fn nothing_unsafe_is_left(text in proptest::string::string_regex("(.|\\PC|[\\x00-\\x9f]|\u{1b}\\[0?m?){0,40}").unwrap()) {
            let is_left = |c: char| is_unsafe(c);
            proptest::prop_assert!(!line(&text).contains(is_left));
            proptest::prop_assert!(!lines(&text).contains(|c: char| is_left(c) && !matches!(c, '\n' | '\t')));
            let styled = styled_lines(&text).into_owned();
            for (at, _) in styled.match_indices('\u{1b}') {
                proptest::prop_assert!(style_length(&styled[at..]) > 0);
            }
        }
    }
}
