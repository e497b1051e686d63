//! Whether a request was meant for this node, or caused by a page of another site.

use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{StatusCode, request};
use sluice_domain::access;

use super::{Access, Refusal};

impl Access {
    /// Rejects requests for other hosts, and those that a page of another site caused.
    pub(super) fn check_site(&self, head: &request::Parts) -> Result<(), Refusal> {
        let headers = &head.headers;
        let foreign = headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
        // A link of another site may open a page; the session cookie is not sent with anything else.
        let is_opened_page =
            head.method.is_safe() && headers.get("sec-fetch-mode").is_some_and(|mode| mode == "navigate");
        if foreign && !is_opened_page {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "cross-site", "cross-site requests are rejected"));
        }
        let named = single(headers, header::HOST).ok().flatten();
        let target = head.uri.authority().map(|authority| authority.as_str());
        let host = match (named, target) {
            (Some(host), None) => host,
            (Some(host), Some(target)) if host.eq_ignore_ascii_case(target) => host,
            _ => return Err(Refusal::new(StatusCode::BAD_REQUEST, "host-invalid", "send exactly one Host header")),
        };
        if !access::host_is_allowed(host, &self.allowed_hosts) {
            let detail = format!(
                "this node does not serve the host `{host}`; use localhost, or start the node with --admin-allowed-hosts"
            );
            return Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, "host-not-allowed", detail));
        }
        match single(headers, header::ORIGIN) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) if access::origin_matches(origin, host) => Ok(()),
            _ => Err(Refusal::new(StatusCode::FORBIDDEN, "cross-site", "the Origin header does not name this node")),
        }
    }
}

/// Whether a browser states that a page of this node made the request.
pub(super) fn is_same_origin(headers: &HeaderMap) -> bool {
    match headers.get("sec-fetch-site") {
        Some(site) => site == "same-origin",
        // Browsers send no Sec-Fetch-Site over plain HTTP to other machines; the Origin was compared with the host.
        None => headers.contains_key(header::ORIGIN),
    }
}

/// Whether the browser reached this node over HTTPS, through a proxy.
pub(super) fn is_https(headers: &HeaderMap) -> bool {
    headers.get(header::ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

/// The value of a header that may occur once; an error if it is repeated or not text.
pub(super) fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        _ => Err(()),
    }
}
