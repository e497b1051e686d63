//! Makes unquoted `{{ … }}` and `${…}` readable for a YAML parser.
//!
//! In YAML a `{` opens a mapping. Every ASCII character of an unquoted template is replaced by one private-use
//! character, so that positions stay the same, and restored in the parser's output.

use std::borrow::Cow;
use std::ops::RangeInclusive;

const PLANE: u32 = 0xF_0000;
const STAND_INS: RangeInclusive<char> = '\u{F0020}'..='\u{F007E}';

/// Byte offset of the first reserved private-use character in the text.
pub(super) fn find_reserved(text: &str) -> Option<usize> {
    text.find(|c| STAND_INS.contains(&c))
}

/// Restores text replaced by [`hide`].
pub(super) fn reveal(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| STAND_INS.contains(&c)) {
        return Cow::Borrowed(text);
    }
    let back = |c: char| match STAND_INS.contains(&c) {
        true => char::from_u32(u32::from(c) - PLANE).unwrap_or(c),
        false => c,
    };
    Cow::Owned(text.chars().map(back).collect())
}

/// Replaces every template outside of quotes, comments and block scalars that ends on its first line. The number of
/// characters does not change.
pub(super) fn hide(text: &str) -> Cow<'_, str> {
    if !text.contains("{{") && !text.contains("${") {
        return Cow::Borrowed(text);
    }
    let mut scan = Scan { out: String::with_capacity(text.len() + 64), quote: None, block: None, depth: 0 };
    for line in text.split_inclusive('\n') {
        scan.line(line);
    }
    Cow::Owned(scan.out)
}

/// Scanner state between lines.
struct Scan {
    out: String,
    quote: Option<char>,
    /// Lines indented more than this belong to a block scalar.
    block: Option<usize>,
    depth: usize,
}

impl Scan {
    fn line(&mut self, line: &str) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if let Some(parent) = self.block {
            if line.trim().is_empty() || indent > parent {
                self.out.push_str(line);
                return;
            }
            self.block = None;
        }
        // Column of the innermost key or dash of this line; a block scalar is indented more.
        let mut parent = indent;
        let mut at_start = true;
        let mut before = ' ';
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let next = rest[c.len_utf8()..].chars().next().unwrap_or('\n');
            if let Some(open) = self.quote {
                let taken = match (open, c, next) {
                    ('"', '\\', '\n') => 1,
                    ('"', '\\', _) => 1 + next.len_utf8(),
                    ('\'', '\'', '\'') => 2,
                    _ => c.len_utf8(),
                };
                if taken == 1 && c == open {
                    self.quote = None;
                    at_start = false;
                }
                rest = self.keep(rest, taken);
                before = c;
                continue;
            }
            if c == '#' && before.is_whitespace() {
                self.out.push_str(rest);
                return;
            }
            if (rest.starts_with("{{") || rest.starts_with("${"))
                && let Some(end) = template_end(rest)
            {
                self.out.extend(rest[..end].chars().map(stand_in));
                rest = &rest[end..];
                at_start = false;
                before = '}';
                continue;
            }
            if at_start && self.depth == 0 && matches!(c, '|' | '>') && is_block_header(&rest[1..]) {
                self.block = Some(parent);
                self.out.push_str(rest);
                return;
            }
            match c {
                '"' | '\'' if at_start => self.quote = Some(c),
                '[' | '{' if at_start || self.depth > 0 => {
                    self.depth += 1;
                    at_start = true;
                }
                ']' | '}' if self.depth > 0 => {
                    self.depth -= 1;
                    at_start = false;
                }
                ',' if self.depth > 0 => at_start = true,
                ':' if next.is_whitespace() || self.depth > 0 => at_start = true,
                '-' | '?' if at_start && self.depth == 0 && next.is_whitespace() => {
                    let column = line.len() - rest.len();
                    let inner = rest[1..].trim_start_matches(' ');
                    let is_key = !inner.starts_with(['|', '>', '-']);
                    parent = if is_key { line.len() - inner.len() } else { column };
                }
                // A tag or an anchor; the value follows.
                '!' | '&' if at_start => {
                    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                    rest = self.keep(rest, end);
                    before = c;
                    continue;
                }
                c if c.is_whitespace() => {}
                _ => at_start = false,
            }
            rest = self.keep(rest, c.len_utf8());
            before = c;
        }
    }

    fn keep<'a>(&mut self, rest: &'a str, bytes: usize) -> &'a str {
        self.out.push_str(&rest[..bytes]);
        &rest[bytes..]
    }
}

/// `|`, `>-`, `|2+` and similar, followed by at most a comment.
fn is_block_header(after: &str) -> bool {
    let after = after.trim_start_matches(['+', '-']).trim_start_matches(|c: char| c.is_ascii_digit());
    let after = after.trim_start_matches(['+', '-']);
    after.trim().is_empty() || (after.starts_with([' ', '\t']) && after.trim_start().starts_with('#'))
}

/// End of the template at the start of the text, on the same line; braces in quotes are ignored.
fn template_end(text: &str) -> Option<usize> {
    let close = if text.starts_with("{{") { "}}" } else { "}" };
    let mut quote = None;
    for (at, c) in text.char_indices().skip(2) {
        match quote {
            _ if c == '\n' => return None,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if text[at..].starts_with(close) => return Some(at + close.len()),
            None => {}
        }
    }
    None
}

fn stand_in(c: char) -> char {
    match c {
        ' '..='~' => char::from_u32(PLANE + u32::from(c)).unwrap_or(c),
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str) -> Vec<String> {
        let shown = hide(text);
        assert_eq!(shown.chars().count(), text.chars().count());
        assert_eq!(reveal(&shown), text);
        shown
            .split(|c| !STAND_INS.contains(&c))
            .filter(|part| !part.is_empty())
            .map(|part| reveal(part).into_owned())
            .collect()
    }

    #[test]
    fn unquoted_templates_are_hidden_in_every_value_position() {
        assert_eq!(hidden("key: {{ steps.a-b.output.key }}\n"), ["{{ steps.a-b.output.key }}"]);
        assert_eq!(hidden("- {{ a }}:{{ b }} # {{ c }}\n"), ["{{ a }}", "{{ b }}"]);
        assert_eq!(hidden("x: [{{ a['}}'] }}, ${secrets.B}]"), ["{{ a['}}'] }}", "${secrets.B}"]);
        assert_eq!(hidden("it: don't {{ a }}\nb: {{ c }}"), ["{{ a }}", "{{ c }}"]);
    }

    #[test]
    fn quotes_comments_and_block_scalars_are_unchanged() {
        assert!(hidden("a: '{{ it''s }}'\nb: \"{{ \\\"x\\\" }}\"\n# don't {{ a }}\n").is_empty());
        assert!(hidden("a: \"two\n  lines {{ b }}\"\n").is_empty());
        assert_eq!(hidden("- s: |\n    \"open {{ a }}\n  n: {{ b }}\n- c: {{ d }}"), ["{{ b }}", "{{ d }}"]);
        assert_eq!(hidden("s: >-  # why\n  it's {{ a }}\nn: {{ b }}"), ["{{ b }}"]);
        assert_eq!(hidden("- |\n  'x {{ a }}\n- {{ b }}"), ["{{ b }}"]);
        assert!(hidden("a: {{ never closed\nb: }}").is_empty());
        assert!(hidden("[a, '{{ it''s }}', {b: \"{{ \\\"c\\\" }}\"}]").is_empty());
        assert!(hidden(r#"{"a":{"b":"{{ c }}","d":{}}}"#).is_empty());
    }

    proptest::proptest! {
        #[test]
        fn hiding_preserves_every_character(text in "([-a#:|>'\"{}\\[\\]$ \n\\\\é,&!]|\\{\\{|\\}\\}){0,60}") {
            let shown = hide(&text);
            proptest::prop_assert_eq!(shown.chars().count(), text.chars().count());
            proptest::prop_assert_eq!(reveal(&shown), text.as_str());
        }
    }
}
