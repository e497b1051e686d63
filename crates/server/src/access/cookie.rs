//! The cookies of a session, and of a sign-in that continues at a provider.

use axum::http::header::{self, HeaderMap};
use sluice_domain::access::SESSION_LIFETIME;
use sluice_domain::access::oidc::SIGN_IN_LIFETIME;

/// Over plain HTTP, where browsers refuse the prefixed name.
const PLAIN: &str = "sluice_session";
/// Over HTTPS: no other host and no plain connection can set it.
const SECURE: &str = "__Host-sluice_session";

/// A started sign-in, over plain HTTP.
const PENDING_PLAIN: &str = "sluice_oidc";
const PENDING_SECURE: &str = "__Host-sluice_oidc";

/// Value of the first of these cookies that a request has.
fn find<'a>(headers: &'a HeaderMap, names: [&str; 2]) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs: Vec<(&str, &str)> =
        cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('=')).collect();
    let named = |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    names.into_iter().find_map(named).filter(|value| !value.is_empty())
}

/// Secret of the session in a request.
pub(super) fn session_secret(headers: &HeaderMap) -> Option<&str> {
    find(headers, [SECURE, PLAIN])
}

/// The sign-in that was started in this browser.
pub(super) fn pending(headers: &HeaderMap) -> Option<&str> {
    find(headers, [PENDING_SECURE, PENDING_PLAIN])
}

/// `Set-Cookie` of a new session.
pub(super) fn set(secret: &str, https: bool) -> String {
    let (name, secure) = if https { (SECURE, "; Secure") } else { (PLAIN, "") };
    with_lifetime(name, secret, SESSION_LIFETIME.as_secs(), secure)
}

/// `Set-Cookie` of a started sign-in. The provider sends the browser back by a link of another site, with which `Lax` cookies are sent.
pub(super) fn set_pending(value: &str, https: bool) -> String {
    let (name, secure) = if https { (PENDING_SECURE, "; Secure") } else { (PENDING_PLAIN, "") };
    with_lifetime(name, value, SIGN_IN_LIFETIME.as_secs(), secure)
}

fn with_lifetime(name: &str, value: &str, seconds: u64, secure: &str) -> String {
    format!("{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}")
}

/// `Set-Cookie` headers that end a session, under either name.
pub(crate) fn clear() -> [String; 2] {
    clear_both(PLAIN, SECURE)
}

/// `Set-Cookie` headers that end a started sign-in.
pub(crate) fn clear_pending() -> [String; 2] {
    clear_both(PENDING_PLAIN, PENDING_SECURE)
}

fn clear_both(plain: &str, secure: &str) -> [String; 2] {
    [with_lifetime(plain, "", 0, ""), with_lifetime(secure, "", 0, "; Secure")]
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
            for cookie in [set("abc", https), set_pending("abc", https)] {
                assert!(cookie.contains("; HttpOnly; SameSite=Lax"));
                assert_eq!(cookie.contains("Secure"), https);
                assert_eq!(cookie.starts_with("__Host-"), https);
            }
        }
    }
}
