//! Parses `multipart/form-data` bodies, as browsers, Jotform and the inbound routes of Mailgun send them. Fields are
//! supported, files are rejected.
//!
//! `multer` does the parsing. It reads a stream; the body is in memory, so the stream is one chunk and one poll completes it.

use std::borrow::Cow;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use multer::{Field, Multipart};
use serde_json::Value;

use super::{PayloadProblem, form};
use crate::flow::DuplicateKeys;

/// Maximum length of a boundary, by RFC 2046.
const BOUNDARY_MAX: usize = 70;
/// Maximum size of the headers of a part.
const HEADER_BYTES_MAX: usize = 4_096;

/// Parses a form. Names follow the rules of [`form::parse`]; the content type holds the boundary.
pub fn parse(body: &[u8], content_type: &str, duplicate_keys: DuplicateKeys) -> Result<Value, PayloadProblem> {
    let pairs = pairs(body, content_type)?;
    form::from_pairs(
        pairs.into_iter().map(|(name, value)| (Cow::Owned(name.into_bytes()), Cow::Owned(value))),
        duplicate_keys,
    )
}

/// Names and values of the fields, in the order of the body.
pub fn pairs(body: &[u8], content_type: &str) -> Result<Vec<(String, Vec<u8>)>, PayloadProblem> {
    let multipart = Multipart::new(OneChunk(Some(body.to_vec())), boundary(content_type)?);
    let mut context = Context::from_waker(Waker::noop());
    match pin!(fields(multipart)).poll(&mut context) {
        Poll::Ready(pairs) => pairs,
        // The stream never waits, so this does not happen; it is an error rather than a loop.
        Poll::Pending => Err(invalid("the last part has no end")),
    }
}

/// A stream with the whole body as its only item.
struct OneChunk(Option<Vec<u8>>);

impl Stream for OneChunk {
    type Item = Result<Vec<u8>, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

async fn fields(mut multipart: Multipart<'_>) -> Result<Vec<(String, Vec<u8>)>, PayloadProblem> {
    let mut pairs = Vec::new();
    while let Some(field) = multipart.next_field().await.map_err(problem)? {
        let is_file = is_file(&field);
        let name = name(&field)?;
        let value = field.bytes().await.map_err(problem)?;
        if is_file {
            // A browser sends an empty file for a file input without a selection.
            if value.is_empty() {
                continue;
            }
            return Err(PayloadProblem::File(name.chars().take(60).collect()));
        }
        if pairs.len() == form::FIELDS_MAX {
            return Err(PayloadProblem::Form(format!("it has more than {} fields", form::FIELDS_MAX)));
        }
        pairs.push((name, value.into()));
    }
    Ok(pairs)
}

/// The name of a part with acceptable headers.
fn name(field: &Field<'_>) -> Result<String, PayloadProblem> {
    let headers = field.headers();
    if headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>() > HEADER_BYTES_MAX {
        return Err(invalid("the headers of a part are too long"));
    }
    if let Some(encoding) = headers.get("content-transfer-encoding") {
        let plain = ["7bit", "8bit", "binary"];
        if !plain.iter().any(|name| encoding.as_bytes().eq_ignore_ascii_case(name.as_bytes())) {
            return Err(invalid("a part has a transfer encoding, which forms do not use"));
        }
    }
    let name = field.name().ok_or_else(|| invalid("a part has no name"))?;
    // Browsers percent-encode these three characters, other clients escape the backslash.
    Ok(name.replace("\\\\", "\\").replace("%22", "\"").replace("%0D", "\r").replace("%0A", "\n"))
}

/// True if the part has a `filename` or `filename*` parameter, in any case. `multer` knows only `filename`.
fn is_file(field: &Field<'_>) -> bool {
    let disposition = field.headers().get("content-disposition").map_or(&b""[..], |value| value.as_bytes());
    let is_filename = |parameter: &[u8]| {
        let name = parameter.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        name.eq_ignore_ascii_case(b"filename") || name.eq_ignore_ascii_case(b"filename*")
    };
    field.file_name().is_some() || disposition.split(|byte| *byte == b';').any(is_filename)
}

fn boundary(content_type: &str) -> Result<String, PayloadProblem> {
    let boundary = multer::parse_boundary(content_type).unwrap_or_default();
    let is_text = boundary.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && !boundary.ends_with(' ');
    if is_text && (1..=BOUNDARY_MAX).contains(&boundary.len()) {
        Ok(boundary)
    } else {
        Err(invalid("the content type has no valid boundary"))
    }
}

/// The reason without any text of the body: `multer` quotes names and headers of any length.
fn problem(error: multer::Error) -> PayloadProblem {
    use multer::Error;
    invalid(match error {
        Error::IncompleteStream | Error::IncompleteFieldData { .. } => "a part has no end, or there is no part",
        Error::IncompleteHeaders
        | Error::ReadHeaderFailed(_)
        | Error::DecodeHeaderName { .. }
        | Error::DecodeHeaderValue { .. } => "the headers of a part are invalid",
        _ => "it is not valid multipart/form-data",
    })
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
    fn fields_follow_the_rules_of_urlencoded_forms() {
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
    fn files_are_rejected_by_name() {
        for filename in ["filename=\"cv.pdf\"", "FileName=cv.pdf", "filename*=utf-8''cv.pdf", "filename=\"\""] {
            let head = format!("name=\"cv\"; {filename}");
            let problem = read(&format!("{}--x y--", part(&head, "%PDF"))).unwrap_err();
            assert_eq!((problem.code(), problem.to_string().contains("`cv`")), ("multipart-file", true), "{problem}");
        }
    }

    #[test]
    fn limits_hold_for_boundary_headers_and_fields() {
        let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
        assert!(parse(format!("--{}--", "x".repeat(71)).as_bytes(), &long, DuplicateKeys::Refuse).is_err());
        let head = format!("name=a\nX-Long: {}", "x".repeat(HEADER_BYTES_MAX));
        assert_eq!(read(&format!("{}--x y--", part(&head, "1"))).unwrap_err().code(), "form-invalid");
        let most = part("name=a", "1").repeat(form::FIELDS_MAX);
        assert!(read(&format!("{most}--x y--")).is_ok());
        let problem = read(&format!("{most}{}--x y--", part("name=a", "1"))).unwrap_err();
        assert!(problem.to_string().contains("more than"), "{problem}");
    }

    #[test]
    fn browser_boundaries_keep_their_case() {
        let body = b"------WebKitFormBoundaryAbC1\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n1\r\n------WebKitFormBoundaryAbC1--\r\n";
        let content_type = "Multipart/Form-Data; boundary=----WebKitFormBoundaryAbC1";
        assert_eq!(parse(body, content_type, DuplicateKeys::Refuse).unwrap(), json!({"a": "1"}));
    }

    #[test]
    fn missing_end_or_name_is_rejected() {
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
        fn arbitrary_bytes_do_not_panic(body in "[-x y\\r\\nname=;:\"\\\\%aC]{0,80}", content_type in "multipart/form-data; boundary=[ -~]{0,10}") {
            let _ = parse(body.as_bytes(), &content_type, DuplicateKeys::Refuse);
        }
    }
}
