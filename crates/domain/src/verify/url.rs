//! The public URL as configured at the sender. Behind a proxy it differs from the URL that arrives.

use std::borrow::Cow;

use super::request::Request;

/// A validated public URL.
#[derive(Clone, Debug)]
pub(super) struct PublicUrl {
    text: Box<str>,
    /// Index of the `?`, or the length.
    query_at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlProblem {
    #[error("it must start with https:// or http://")]
    Scheme,
    #[error("it has no host")]
    Host,
    #[error("remove the part from # on; it is never sent to a server")]
    Fragment,
    #[error("it contains a space or a control character; percent-encode it")]
    Character,
}

impl PublicUrl {
    pub(super) fn parse(text: &str) -> Result<PublicUrl, UrlProblem> {
        let (_, rest) = split_scheme(text).ok_or(UrlProblem::Scheme)?;
        if rest.is_empty() || rest.starts_with(['/', '?', ':', '#']) {
            return Err(UrlProblem::Host);
        }
        if text.contains('#') {
            return Err(UrlProblem::Fragment);
        }
        if text.bytes().any(|byte| byte == b' ' || byte.is_ascii_control()) {
            return Err(UrlProblem::Character);
        }
        let query_at = text.find('?').unwrap_or(text.len());
        Ok(PublicUrl { text: text.into(), query_at })
    }

    /// As configured.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The URL of this request: scheme, host and path as configured, with the query of the request if it has one, since
    /// senders add parameters of their own.
    pub(super) fn of_request(&self, request: &Request<'_>) -> Cow<'_, str> {
        match request.query() {
            Some(query) if self.text.get(self.query_at + 1..) != Some(query) => {
                Cow::Owned(format!("{}?{query}", &self.text[..self.query_at]))
            }
            _ => Cow::Borrowed(&self.text),
        }
    }
}

/// The scheme including `://`, and the rest.
pub(super) fn split_scheme(url: &str) -> Option<(&str, &str)> {
    let at = url.find("://")? + 3;
    let (scheme, rest) = url.split_at(at);
    let known = ["https://", "http://"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    known.then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_taken_from_the_request_and_the_rest_from_the_configuration() {
        let of = |configured: &str, arrived: &str| {
            let headers: [(&str, &str); 0] = [];
            let request = Request { method: "POST", path_and_query: arrived, headers: &headers, body: b"" };
            PublicUrl::parse(configured).unwrap().of_request(&request).into_owned()
        };
        assert_eq!(of("https://a.b/in", "/proxied"), "https://a.b/in");
        assert_eq!(of("https://a.b/in?x=1", "/proxied"), "https://a.b/in?x=1");
        assert_eq!(of("https://a.b/in?x=1", "/in?x=1"), "https://a.b/in?x=1");
        assert_eq!(of("https://a.b/in?x=1", "/in?x=1&y=2"), "https://a.b/in?x=1&y=2");
        assert_eq!(of("https://a.b/in", "/in?y=2"), "https://a.b/in?y=2");
        assert_eq!(of("https://a.b", "/?y=2"), "https://a.b?y=2");
    }

    #[test]
    fn invalid_public_urls_are_rejected() {
        let problem = |text: &str| PublicUrl::parse(text).unwrap_err();
        assert_eq!(problem("hooks.example.com/in"), UrlProblem::Scheme);
        assert_eq!(problem("ftp://a/b"), UrlProblem::Scheme);
        assert_eq!(problem("https:///in"), UrlProblem::Host);
        assert_eq!(problem("https://a/in#rc=3"), UrlProblem::Fragment);
        assert_eq!(problem("https://a/in x"), UrlProblem::Character);
    }
}
