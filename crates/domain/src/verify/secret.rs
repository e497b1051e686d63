//! Secrets: a value that cannot be printed, and the ring of keys made from the configured ones.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;

use super::error::VerifyError;

/// A secret text. Neither `Debug` nor `Display` shows it; only [`SecretValue::expose`] hands it out.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct SecretValue(Box<str>);

impl SecretValue {
    /// Wraps a secret.
    pub fn new(text: impl Into<Box<str>>) -> SecretValue {
        SecretValue(text.into())
    }

    /// Whether this text is the secret, in a time that does not depend on where they differ.
    pub fn matches(&self, text: &str) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), text.as_bytes()).is_ok()
    }

    /// The secret itself. Whoever calls this keeps it out of logs, answers and stored events.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretValue {
    fn from(text: String) -> SecretValue {
        SecretValue(text.into())
    }
}

impl From<&str> for SecretValue {
    fn from(text: &str) -> SecretValue {
        SecretValue(text.into())
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// One configured secret, or the public key that stands in its place for an asymmetric scheme.
#[derive(Clone, Debug)]
pub struct Secret {
    /// What people call it, in messages and in [`Verified`](super::Verified).
    pub name: String,
    /// The value exactly as the sender's console shows it, `whsec_` and the like included.
    pub value: SecretValue,
    /// The last moment at which it is accepted; `None` never ends.
    pub not_after: Option<Timestamp>,
}

impl Secret {
    /// A secret that does not expire.
    pub fn new(name: impl Into<String>, value: impl Into<SecretValue>) -> Secret {
        Secret { name: name.into(), value: value.into(), not_after: None }
    }
}

/// A secret after its key material was decoded.
#[derive(Clone)]
pub(super) struct Keyed<K> {
    pub(super) name: Box<str>,
    not_after: Option<Timestamp>,
    pub(super) key: K,
}

/// Every key of a verifier, in the order in which they were configured.
#[derive(Clone)]
pub(super) struct Keyring<K>(Vec<Keyed<K>>);

impl<K> Keyring<K> {
    /// Decodes each secret once.
    pub(super) fn build<E>(secrets: &[Secret], decode: impl Fn(&Secret) -> Result<K, E>) -> Result<Keyring<K>, E> {
        let keys = secrets.iter().map(|secret| {
            let name = secret.name.as_str().into();
            Ok(Keyed { name, not_after: secret.not_after, key: decode(secret)? })
        });
        Ok(Keyring(keys.collect::<Result<_, E>>()?))
    }

    /// The name of the first key that is still accepted and passes `matches`.
    ///
    /// Expired keys are tried too, so that a sender that was never rotated is told apart from one
    /// that does not know any secret; they never admit.
    pub(super) fn admit(
        &self,
        now: Timestamp,
        mismatch: VerifyError,
        mut matches: impl FnMut(&K) -> bool,
    ) -> Result<&str, VerifyError> {
        let mut expired = None;
        for keyed in &self.0 {
            let alive = keyed.is_alive(now);
            if (alive || expired.is_none()) && matches(&keyed.key) {
                if alive {
                    return Ok(&keyed.name);
                }
                expired = Some(keyed);
            }
        }
        Err(match expired {
            Some(keyed) => VerifyError::SecretExpired { secret: keyed.name.to_string() },
            None => mismatch,
        })
    }

    /// The key that signs: the first that is still accepted.
    pub(super) fn signing(&self, now: Timestamp) -> Option<&K> {
        self.0.iter().find(|keyed| keyed.is_alive(now)).map(|keyed| &keyed.key)
    }
}

impl<K> Keyed<K> {
    fn is_alive(&self, now: Timestamp) -> bool {
        self.not_after.is_none_or(|end| now <= end)
    }
}

/// Names only: a key's own `Debug` may show more than it should.
impl<K> fmt::Debug for Keyring<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|keyed| &keyed.name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ring(secrets: &[(&str, Option<i64>)]) -> Keyring<String> {
        let secrets: Vec<Secret> = secrets
            .iter()
            .map(|(name, end)| Secret { not_after: end.map(at), ..Secret::new(*name, format!("value of {name}")) })
            .collect();
        Keyring::build(&secrets, |secret| Ok::<_, ()>(secret.name.clone())).unwrap()
    }

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new("main", "hunter2");
        for shown in [format!("{secret:?}"), format!("{} {:#?}", secret.value, secret.value)] {
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains("***"), "{shown}");
        }
        assert_eq!(secret.value.expose(), "hunter2");
    }

    #[test]
    fn a_secret_is_accepted_up_to_and_including_its_last_moment() {
        let ring = ring(&[("old", Some(100)), ("new", None)]);
        let admit =
            |now, name: &str| ring.admit(at(now), VerifyError::SignatureMismatch, |key| key == name).map(str::to_owned);
        assert_eq!(admit(100, "old"), Ok("old".into()));
        assert_eq!(admit(101, "old"), Err(VerifyError::SecretExpired { secret: "old".into() }));
        assert_eq!(admit(101, "new"), Ok("new".into()));
        assert_eq!(admit(101, "other"), Err(VerifyError::SignatureMismatch));
        assert_eq!(ring.signing(at(100)).unwrap(), "old");
        assert_eq!(ring.signing(at(101)).unwrap(), "new");
    }
}
