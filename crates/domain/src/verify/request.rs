//! A borrowed view of a request.

use std::borrow::Cow;
use std::fmt;

use super::text;

/// Header lookup by name.
///
/// Implemented here for slices, arrays and vectors of pairs; a server wraps its own header map.
pub trait HeaderSource {
    /// The first value of this header. `name` is in lower case; header names are compared case-insensitively.
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

/// The request as received. The body is the raw bytes, before any parsing.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Upper case.
    pub method: &'a str,
    /// As in the request line, still percent-encoded.
    pub path_and_query: &'a str,
    pub headers: &'a dyn HeaderSource,
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// The value without surrounding whitespace; an empty value counts as missing.
    pub(super) fn header(&self, name: &str) -> Option<&'a [u8]> {
        let value = self.headers.value(name)?.trim_ascii();
        (!value.is_empty()).then_some(value)
    }

    /// The query, still percent-encoded, without the question mark.
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

    /// Compares the content type without its parameters.
    pub(super) fn is_content_type(&self, expected: &str) -> bool {
        self.header("content-type").is_some_and(|value| {
            let essence = value.split(|byte| *byte == b';').next().unwrap_or_default();
            essence.trim_ascii().eq_ignore_ascii_case(expected.as_bytes())
        })
    }
}

/// Hides headers, query and body: they may hold credentials or personal data.
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
    fn header_lookup_ignores_case_and_trims() {
        let headers = [("X-Sig", " \tabc "), ("Empty", "  "), ("x-sig", "second")];
        let request = Request { method: "POST", path_and_query: "/", headers: &headers, body: b"" };
        assert_eq!(request.header("x-sig"), Some(&b"abc"[..]));
        assert_eq!(request.header("empty"), None);
        assert_eq!(request.header("other"), None);
    }

    #[test]
    fn query_parameters_are_decoded() {
        let headers: [(&str, &str); 0] = [];
        let request =
            Request { method: "GET", path_and_query: "/in?a=1&b%5Bc%5D=x+y%2Bz&a=2&d", headers: &headers, body: b"" };
        assert_eq!(request.parameter("a").as_deref(), Some(&b"1"[..]));
        assert_eq!(request.parameter("b[c]").as_deref(), Some(&b"x y+z"[..]));
        assert_eq!(request.parameter("d").as_deref(), Some(&b""[..]));
        assert_eq!(request.parameter("e"), None);
    }

    #[test]
    fn debug_output_hides_request_contents() {
        let headers = [("authorization", "Bearer hunter2")];
        let request =
            Request { method: "POST", path_and_query: "/in?token=hunter2", headers: &headers, body: b"hunter2" };
        assert!(!format!("{request:?}").contains("hunter2"));
    }
}
