//! Codes that were issued to browsers, until they are redeemed.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A code counts for this time.
const CODE_LIFETIME: Duration = Duration::from_secs(60);
/// Codes that are kept; the oldest is dropped beyond it.
const CODES_MAX: usize = 10_000;

/// What a code was issued for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) login: String,
    pub(super) redirect_uri: String,
    pub(super) challenge: String,
    pub(super) nonce: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Codes {
    issued: HashMap<String, (Instant, Option<Grant>)>,
}

/// What became of a code.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Redeemed {
    Grant(Grant),
    Unknown,
    Again,
}

impl Codes {
    pub(super) fn issue(&mut self, code: String, grant: Grant, now: Instant) {
        if self.issued.len() >= CODES_MAX {
            let oldest = self.issued.iter().min_by_key(|(_, (at, _))| *at).map(|(code, _)| code.clone());
            oldest.map(|code| self.issued.remove(&code));
        }
        self.issued.insert(code, (now, Some(grant)));
    }

    /// Takes a code once.
    pub(super) fn redeem(&mut self, code: &str, now: Instant) -> Redeemed {
        match self.issued.get_mut(code) {
            None => Redeemed::Unknown,
            Some((_, None)) => Redeemed::Again,
            Some((at, _)) if now.duration_since(*at) >= CODE_LIFETIME => Redeemed::Unknown,
            Some((_, grant)) => grant.take().map_or(Redeemed::Again, Redeemed::Grant),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_counts_once_and_for_a_minute() {
        let grant = Grant { login: "ann".into(), redirect_uri: String::new(), challenge: String::new(), nonce: None };
        let (mut codes, now) = (Codes::default(), Instant::now());
        codes.issue("a".into(), grant.clone(), now);
        codes.issue("b".into(), grant.clone(), now);
        assert_eq!(codes.redeem("a", now), Redeemed::Grant(grant));
        assert_eq!(codes.redeem("a", now), Redeemed::Again);
        assert_eq!(codes.redeem("b", now + CODE_LIFETIME), Redeemed::Unknown);
        assert_eq!(codes.redeem("c", now), Redeemed::Unknown);
    }
}
