//! Sessions, API tokens and sign-in links: how long each is valid.

use std::time::Duration;

use crate::time::Time;

/// A session ends after this time without a request.
pub const SESSION_IDLE: Duration = Duration::from_secs(12 * 3_600);
/// A session ends after this time in any case.
pub const SESSION_LIFETIME: Duration = Duration::from_secs(7 * 86_400);
pub const LINK_LIFETIME: Duration = Duration::from_secs(30 * 60);
pub const TOKEN_LIFETIME_DEFAULT: Duration = Duration::from_secs(90 * 86_400);
pub const TOKEN_LIFETIME_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Sessions of one user; a further one ends the oldest.
pub const SESSIONS_PER_USER_MAX: usize = 32;
pub const USERS_MAX: usize = 1_000;
pub const TOKENS_MAX: usize = 1_000;
/// A use is recorded at most once in this time, so that reads do not become writes.
const USE_RECORDED_EVERY: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CredentialKind {
    /// Of a browser, in a cookie.
    Session,
    /// Of a program, in the Authorization header.
    Token,
    /// Makes one session.
    Link,
}

impl CredentialKind {
    pub fn as_str(self) -> &'static str {
        match self {
            CredentialKind::Session => "session",
            CredentialKind::Token => "token",
            CredentialKind::Link => "link",
        }
    }

    pub fn parse(word: &str) -> Option<CredentialKind> {
        [CredentialKind::Session, CredentialKind::Token, CredentialKind::Link]
            .into_iter()
            .find(|kind| kind.as_str() == word)
    }
}

/// Whether a credential that was last used at this time is valid now.
pub fn is_valid(kind: CredentialKind, expires_at: Time, used_at: Time, now: Time) -> bool {
    let is_idle = kind == CredentialKind::Session && now >= used_at + SESSION_IDLE;
    now < expires_at && !is_idle
}

/// Whether a use at this time is written down.
pub fn use_is_recorded(used_at: Time, now: Time) -> bool {
    now >= used_at + USE_RECORDED_EVERY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ends_when_idle_and_after_its_lifetime() {
        let (start, expires) = (Time(0), Time(0) + SESSION_LIFETIME);
        let session = |used_at, now| is_valid(CredentialKind::Session, expires, used_at, now);
        assert!(session(start, Time(0) + SESSION_IDLE - Duration::from_millis(1)));
        assert!(!session(start, Time(0) + SESSION_IDLE));
        let late = expires - Duration::from_secs(1);
        assert!(session(late, late) && !session(late, expires));
    }

    #[test]
    fn token_does_not_end_when_idle() {
        let expires = Time(0) + TOKEN_LIFETIME_DEFAULT;
        assert!(is_valid(CredentialKind::Token, expires, Time(0), expires - Duration::from_secs(1)));
        assert!(!is_valid(CredentialKind::Token, expires, expires, expires));
    }

    #[test]
    fn use_is_recorded_once_a_minute() {
        assert!(!use_is_recorded(Time(0), Time(59_999)));
        assert!(use_is_recorded(Time(0), Time(60_000)));
    }
}
