//! The cookie of a session.

use axum::http::header::{self, HeaderMap};
use sluice_domain::access::SESSION_LIFETIME;

/// Over plain HTTP, where browsers refuse the prefixed name.
const PLAIN: &str = "sluice_session";
/// Over HTTPS: no other host and no plain connection can set it.
const SECURE: &str = "__Host-sluice_session";

/// Secret of the session in a request.
pub(super) fn session_secret(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs: Vec<(&str, &str)> =
        cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('=')).collect();
    let named = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    named(SECURE).or_else(|| named(PLAIN)).filter(|secret| !secret.is_empty())
}

/// `Set-Cookie` of a new session.
pub(super) fn set(secret: &str, https: bool) -> String {
    let seconds = SESSION_LIFETIME.as_secs();
    let (name, secure) = if https { (SECURE, "; Secure") } else { (PLAIN, "") };
    format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

/// `Set-Cookie` headers that end a session, under either name.
pub(crate) fn clear() -> [String; 2] {
    [
        format!("{PLAIN}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"),
        format!("{SECURE}=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure"),
    ]
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn secret_is_found_among_other_cookies_and_the_secure_name_wins() {
        let mut headers = HeaderMap::new();
        assert_eq!(session_secret(&headers), None);
        headers.insert(header::COOKIE, HeaderValue::from_static("theme=dark; sluice_session=abc"));
        assert_eq!(session_secret(&headers), Some("abc"));
        headers.append(header::COOKIE, HeaderValue::from_static("__Host-sluice_session=def"));
        assert_eq!(session_secret(&headers), Some("def"));
    }

    #[test]
    fn script_cannot_read_the_cookie() {
        for https in [false, true] {
            assert!(set("abc", https).contains("; HttpOnly; SameSite=Lax"));
            assert_eq!(set("abc", https).contains("Secure"), https);
        }
    }
}
