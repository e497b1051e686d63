//! The request as it arrived, borrowed.

use std::borrow::Cow;
use std::fmt;

use super::text;

/// Looks header values up by name.
///
/// Implemented here for slices, arrays and vectors of pairs; a server wraps its own header map.
pub trait HeaderSource {
    /// The first value under this name, which is given in lower case; names differ in case only.
    fn value(&self, name: &str) -> Option<&[u8]>;
}

fn find<'a, N: AsRef<str>, V: AsRef<[u8]>>(pairs: &'a [(N, V)], name: &str) -> Option<&'a [u8]> {
    let pair = pairs.iter().find(|(own, _)| own.as_ref().eq_ignore_ascii_case(name))?;
    Some(pair.1.as_ref())
}

impl<N: AsRef<str>, V: AsRef<[u8]>> HeaderSource for &[(N, V)] {
    fn value(&self, name: &str) -> Option<&[u8]> {
        find(self, name)
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>, const LENGTH: usize> HeaderSource for [(N, V); LENGTH] {
    fn value(&self, name: &str) -> Option<&[u8]> {
        find(self, name)
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> HeaderSource for Vec<(N, V)> {
    fn value(&self, name: &str) -> Option<&[u8]> {
        find(self, name)
    }
}

/// The request as it arrived. The body is the bytes that came over the wire, before any parsing.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// In capitals, as in the request line.
    pub method: &'a str,
    /// Path and query as in the request line, still escaped.
    pub path_and_query: &'a str,
    /// The headers.
    pub headers: &'a dyn HeaderSource,
    /// The raw body.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The header's value without surrounding whitespace; an empty one counts as missing.
    pub(super) fn header(&self, name: &str) -> Option<&'a [u8]> {
        let value = self.headers.value(name)?.trim_ascii();
        (!value.is_empty()).then_some(value)
    }

    /// The query, still escaped and without its question mark.
    pub(super) fn query(&self) -> Option<&'a str> {
        let query = self.path_and_query.split_once('?')?.1;
        (!query.is_empty()).then_some(query)
    }

    /// The first query parameter of this name, decoded.
    pub(super) fn parameter(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        text::form_pairs(self.query()?.as_bytes())
            .find(|(own, _)| own.as_ref() == name.as_bytes())
            .map(|(_, value)| value)
    }

    /// Whether the content type is this one, whatever parameters follow it.
    pub(super) fn is_content_type(&self, expected: &str) -> bool {
        self.header("content-type").is_some_and(|value| {
            let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
            essence.trim_ascii().eq_ignore_ascii_case(expected.as_bytes())
        })
    }
}

/// Headers, query and body may hold credentials or personal data: none of them is shown.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path_and_query.split('?').next().unwrap_or_default())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_in_any_case_and_trimmed() {
        let headers = [("X-Sig", " \tabc "), ("Empty", "  "), ("x-sig", "second")];
        let request = Request { method: "POST", path_and_query: "/", headers: &headers, body: b"" };
        assert_eq!(request.header("x-sig"), Some(&b"abc"[..]));
        assert_eq!(request.header("empty"), None);
        assert_eq!(request.header("other"), None);
    }

    #[test]
    fn parameters_are_decoded() {
        let headers: [(&str, &str); 0] = [];
        let request =
            Request { method: "GET", path_and_query: "/in?a=1&b%5Bc%5D=x+y%2Bz&a=2&d", headers: &headers, body: b"" };
        assert_eq!(request.parameter("a").as_deref(), Some(&b"1"[..]));
        assert_eq!(request.parameter("b[c]").as_deref(), Some(&b"x y+z"[..]));
        assert_eq!(request.parameter("d").as_deref(), Some(&b""[..]));
        assert_eq!(request.parameter("e"), None);
    }

    #[test]
    fn a_request_does_not_print_what_it_carries() {
        let headers = [("authorization", "Bearer hunter2")];
        let request =
            Request { method: "POST", path_and_query: "/in?token=hunter2", headers: &headers, body: b"hunter2" };
        assert!(!format!("{request:?}").contains("hunter2"));
    }
}
