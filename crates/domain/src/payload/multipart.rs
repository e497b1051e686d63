//! `multipart/form-data`, as sent by browsers, Jotform and Mailgun's inbound routes. Fields are accepted, files are rejected.

use std::borrow::Cow;

use serde_json::Value;

use super::{PayloadProblem, form};
use crate::flow::DuplicateKeys;

/// RFC 2046, section 5.1.1.
const BOUNDARY_MAX: usize = 70;
/// Maximum length of a part's headers.
const HEAD_BYTES_MAX: usize = 4_096;

/// Parses a form from its parts; names follow the rules of [`form::parse`]. The content type gives the boundary.
pub fn parse(body: &[u8], content_type: &str, duplicate_keys: DuplicateKeys) -> Result<Value, PayloadProblem> {
    let pairs = pairs(body, content_type)?;
    form::from_pairs(
        pairs.into_iter().map(|(name, value)| (Cow::Owned(name.into_bytes()), Cow::Borrowed(value))),
        duplicate_keys,
    )
}

/// Names and values of the fields, in order.
pub fn pairs<'b>(body: &'b [u8], content_type: &str) -> Result<Vec<(String, &'b [u8])>, PayloadProblem> {
    let boundary = boundary(content_type).ok_or_else(|| invalid("the content type has no boundary"))?;
    let delimiter = format!("\r\n--{boundary}");
    // The first delimiter may be at the start of the body, without its leading line break.
    let mut rest = match body.strip_prefix(&delimiter.as_bytes()[2..]) {
        Some(rest) => rest,
        None => after(body, delimiter.as_bytes()).ok_or_else(|| invalid("it has no parts"))?.1,
    };
    let mut pairs = Vec::new();
    loop {
        if rest.starts_with(b"--") {
            return Ok(pairs);
        }
        let (padding, inside) = after(rest, b"\r\n").ok_or_else(|| invalid("the last part is not closed"))?;
        if padding.iter().any(|byte| !matches!(byte, b' ' | b'\t')) {
            return Err(invalid("a boundary is followed by other text"));
        }
        let (part, remaining) =
            after(inside, delimiter.as_bytes()).ok_or_else(|| invalid("the last part is not closed"))?;
        if let Some(pair) = field(part)? {
            pairs.push(pair);
        }
        if pairs.len() > form::FIELDS_MAX {
            return Err(PayloadProblem::Form(format!("it has more than {} fields", form::FIELDS_MAX)));
        }
        rest = remaining;
    }
}

/// One part; `None` for an empty file field.
fn field(part: &[u8]) -> Result<Option<(String, &[u8])>, PayloadProblem> {
    // A part without headers begins with the empty line.
    let (head, value) = match part.strip_prefix(b"\r\n") {
        Some(value) => (&b""[..], value),
        None => after(part, b"\r\n\r\n").ok_or_else(|| invalid("a part has no headers"))?,
    };
    if head.len() > HEAD_BYTES_MAX {
        return Err(invalid("the headers of a part are too long"));
    }
    let head = std::str::from_utf8(head).map_err(|_| invalid("the headers of a part are not UTF-8"))?;
    let header = |name: &str| {
        let lines = head.split("\r\n").filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(own, _)| own.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    };
    let disposition = header("content-disposition").ok_or_else(|| invalid("a part has no content-disposition"))?;
    let name = parameter(disposition, "name").ok_or_else(|| invalid("a part has no name"))?;
    let is_file = parameter(disposition, "filename").is_some() || parameter(disposition, "filename*").is_some();
    if is_file && value.is_empty() {
        return Ok(None);
    }
    if is_file {
        return Err(PayloadProblem::File(name.chars().take(60).collect()));
    }
    let encoding = header("content-transfer-encoding").unwrap_or("8bit").to_ascii_lowercase();
    if !matches!(encoding.as_str(), "7bit" | "8bit" | "binary") {
        return Err(invalid("a part has a transfer encoding, which forms must not use"));
    }
    Ok(Some((name, value)))
}

fn boundary(content_type: &str) -> Option<String> {
    let boundary = parameter(content_type, "boundary")?;
    let is_text = boundary.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !boundary.ends_with(' ');
    (is_text && (1..=BOUNDARY_MAX).contains(&boundary.len())).then_some(boundary)
}

/// Value of `; name=value` or `; name="value"`. Browsers write a quote in a name as `%22`.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    let (_, mut rest) = header.split_once(';')?;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, remaining) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value.replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n"));
        }
        rest = remaining.split_once(';')?.1;
    }
}

fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(letters.next()?.1),
            _ => value.push(letter),
        }
    }
    None
}

/// Splits at the first occurrence.
fn after<'b>(bytes: &'b [u8], wanted: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let at = bytes.windows(wanted.len()).position(|window| window == wanted)?;
    Some((&bytes[..at], &bytes[at + wanted.len()..]))
}

fn invalid(problem: &str) -> PayloadProblem {
    PayloadProblem::Form(problem.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TYPE: &str = "multipart/form-data; boundary=\"x y\"";

    fn read(body: &str) -> Result<Value, PayloadProblem> {
        parse(body.replace('\n', "\r\n").as_bytes(), TYPE, DuplicateKeys::Refuse)
    }

    fn part(head: &str, value: &str) -> String {
        format!("--x y\nContent-Disposition: form-data; {head}\n\n{value}\n")
    }

    #[test]
    fn fields_parse_like_those_of_a_form() {
        let body = format!(
            "{}{}{}{}--x y--\n",
            part("name=\"formID\"", "7"),
            part("name=answers[email]", "a@b.c"),
            part("name=\"say %22hi%22; \\\\ \"; x=1", "two\nlines --x y"),
            part("filename=\"\"; name=\"cv\"", "")
        );
        let expected = json!({"formID": "7", "answers": {"email": "a@b.c"}, "say \"hi\"; \\ ": "two\r\nlines --x y"});
        assert_eq!(read(&body).unwrap(), expected);
        assert_eq!(read(&format!("a preamble\n{body}an epilogue")).unwrap(), expected);
        assert_eq!(read(&format!("{}--x y--", part("name=payload", "{\"zen\":1}"))).unwrap(), json!({"zen": 1}));
    }

    #[test]
    fn files_are_rejected_with_their_field_name() {
        let problem = read(&format!("{}--x y--", part("name=\"cv\"; filename=\"cv.pdf\"", "%PDF"))).unwrap_err();
        assert_eq!((problem.code(), problem.to_string().contains("`cv`")), ("multipart-file", true), "{problem}");
    }

    #[test]
    fn parts_without_an_end_or_a_name_are_rejected() {
        let whole = part("name=a", "1");
        for body in [
            "no part at all",
            &whole,
            "--x y\nContent-Disposition: form-data; name=a\n\n1",
            "--x y\n\nvalue\n--x y--",
            "--x y\nContent-Disposition: form-data\n\n1\n--x y--",
            "--x yz\nContent-Disposition: form-data; name=a\n\n1\n--x y--",
            &format!("{}--x y--", part("name=a\nContent-Transfer-Encoding: base64", "MQ==")),
        ] {
            assert_eq!(read(body).unwrap_err().code(), "form-invalid", "{body}");
        }
        assert_eq!(read("--x y--").unwrap_err(), PayloadProblem::Empty);
        for content_type in
            ["multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"x"]
        {
            assert!(parse(b"--x--", content_type, DuplicateKeys::Refuse).is_err(), "{content_type}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parse_never_panics(body in "[-x y\\r\\nname=;:\"\\\\%aC]{0,80}", content_type in "multipart/form-data; boundary=[ -~]{0,10}") {
            let _ = parse(body.as_bytes(), &content_type, DuplicateKeys::Refuse);
        }
    }
}
