//! Secret values that cannot be printed, and the keyring built from them.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;

use super::error::VerifyError;

/// A secret text. `Debug` and `Display` hide it; only [`SecretValue::expose`] returns it.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct SecretValue(Box<str>);

impl SecretValue {
    pub fn new(text: impl Into<Box<str>>) -> SecretValue {
        SecretValue(text.into())
    }

    /// Compares in constant time.
    pub fn matches(&self, text: &str) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(self.0.as_bytes(), text.as_bytes()).is_ok()
    }

    /// The secret in plain text. The caller keeps it out of logs, responses and stored events.
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

/// A configured secret, or the public key of an asymmetric scheme.
#[derive(Clone, Debug)]
pub struct Secret {
    /// Shown in messages and in [`Verified`](super::Verified).
    pub name: String,
    /// Exactly as shown in the sender's console, including prefixes such as `whsec_`.
    pub value: SecretValue,
    /// Accepted up to and including this time; `None` never expires.
    pub not_after: Option<Timestamp>,
}

impl Secret {
    pub fn new(name: impl Into<String>, value: impl Into<SecretValue>) -> Secret {
        Secret { name: name.into(), value: value.into(), not_after: None }
    }
}

/// A secret with its decoded key.
#[derive(Clone)]
pub(super) struct Keyed<K> {
    pub(super) name: Box<str>,
    not_after: Option<Timestamp>,
    pub(super) key: K,
}

/// All keys of a verifier, in the configured order.
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

    /// Name of the first accepted key for which `matches` is true.
    ///
    /// Expired keys are tried too, to distinguish a sender that missed a rotation from one that knows no secret; they are
    /// never accepted.
    pub(super) fn accept(
        &self,
        now: Timestamp,
        mismatch: VerifyError,
        mut matches: impl FnMut(&K) -> bool,
    ) -> Result<&str, VerifyError> {
        let mut expired = None;
        for keyed in &self.0 {
            let accepted = keyed.is_accepted(now);
            if (accepted || expired.is_none()) && matches(&keyed.key) {
                if accepted {
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

    /// Every key that has not expired, in the configured order.
    pub(super) fn accepted(&self, now: Timestamp) -> impl Iterator<Item = &K> {
        self.0.iter().filter(move |keyed| keyed.is_accepted(now)).map(|keyed| &keyed.key)
    }

    /// The key for signing: the first accepted one.
    pub(super) fn signing(&self, now: Timestamp) -> Option<&K> {
        self.0.iter().find(|keyed| keyed.is_accepted(now)).map(|keyed| &keyed.key)
    }
}

impl<K> Keyed<K> {
    fn is_accepted(&self, now: Timestamp) -> bool {
        self.not_after.is_none_or(|end| now <= end)
    }
}

/// Shows names only; `Debug` of a key may reveal it.
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
    fn secret_is_never_printed() {
        let secret = Secret::new("main", "hunter2");
        for shown in [format!("{secret:?}"), format!("{} {:#?}", secret.value, secret.value)] {
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains("***"), "{shown}");
        }
        assert_eq!(secret.value.expose(), "hunter2");
    }

    #[test]
    fn secret_is_accepted_up_to_and_including_not_after() {
        let ring = ring(&[("old", Some(100)), ("new", None)]);
        let accept = |now, name: &str| {
            ring.accept(at(now), VerifyError::SignatureMismatch, |key| key == name).map(str::to_owned)
        };
        assert_eq!(accept(100, "old"), Ok("old".into()));
        assert_eq!(accept(101, "old"), Err(VerifyError::SecretExpired { secret: "old".into() }));
        assert_eq!(accept(101, "new"), Ok("new".into()));
        assert_eq!(accept(101, "other"), Err(VerifyError::SignatureMismatch));
        assert_eq!(ring.signing(at(100)).unwrap(), "old");
        assert_eq!(ring.signing(at(101)).unwrap(), "new");
    }
}
