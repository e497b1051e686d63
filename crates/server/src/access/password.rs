//! Passwords: argon2id, two at a time.

use std::sync::Arc;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use sluice_ledger::random_token;
use tokio::sync::Semaphore;

/// Memory of one hash, in KiB.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
/// Hashes at once; further ones wait.
const AT_ONCE: usize = 2;
/// Shortest password, in characters.
const LENGTH_MIN: usize = 12;
/// Longest password, in bytes.
const BYTES_MAX: usize = 256;
/// Salt, in bytes.
const SALT_BYTES: usize = 16;

#[derive(Debug, thiserror::Error)]
pub(crate) enum PasswordProblem {
    #[error("a password has at least {LENGTH_MIN} characters and at most {BYTES_MAX} bytes")]
    Length,
    #[error("the password cannot be hashed: {0}")]
    Hash(String),
}

fn argon2() -> Result<Argon2<'static>, PasswordProblem> {
    let params =
        Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(|error| PasswordProblem::Hash(error.to_string()))?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

/// Hashes a new password, in PHC format.
pub(crate) fn hash_password(password: &str) -> Result<String, PasswordProblem> {
    if password.chars().count() < LENGTH_MIN || password.len() > BYTES_MAX {
        return Err(PasswordProblem::Length);
    }
    hash(password)
}

fn hash(password: &str) -> Result<String, PasswordProblem> {
    let salt = random_token();
    let hash: PasswordHash = argon2()?
        .hash_password_with_salt(password.as_bytes(), &salt.as_bytes()[..SALT_BYTES])
        .map_err(|error| PasswordProblem::Hash(error.to_string()))?;
    Ok(hash.to_string())
}

fn matches(password: &str, stored: &str) -> bool {
    let Ok(hash) = PasswordHash::new(stored) else { return false };
    argon2().is_ok_and(|argon2| argon2.verify_password(password.as_bytes(), &hash).is_ok())
}

/// Verifies passwords with bounded memory and processor time. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Passwords {
    permits: Arc<Semaphore>,
    /// Compared for a name that is unknown, so that the time does not tell whether it is.
    decoy: Arc<str>,
}

impl Default for Passwords {
    fn default() -> Passwords {
        let decoy = hash(&random_token()).unwrap_or_default();
        Passwords { permits: Arc::new(Semaphore::new(AT_ONCE)), decoy: decoy.into() }
    }
}

impl Passwords {
    /// Whether this is the password; `stored` is absent for an unknown user and for one without a password.
    pub(super) async fn verify(&self, password: String, stored: Option<String>) -> bool {
        let Ok(_permit) = self.permits.acquire().await else { return false };
        if password.len() > BYTES_MAX {
            return false;
        }
        let decoy = self.decoy.clone();
        let compare = move || match stored {
            Some(stored) => matches(&password, &stored),
            None => {
                matches(&password, &decoy);
                false
            }
        };
        tokio::task::spawn_blocking(compare).await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_is_hashed_with_argon2id_and_a_salt_of_its_own() {
        let first = hash_password("correct horse battery").unwrap();
        let second = hash_password("correct horse battery").unwrap();
        assert!(first.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{first}");
        assert_ne!(first, second);
        assert!(matches("correct horse battery", &first) && !matches("correct horse", &first));
        assert!(!matches("correct horse battery", "not a hash"));
    }

    #[test]
    fn short_password_is_an_error() {
        assert!(matches!(hash_password("short"), Err(PasswordProblem::Length)));
        assert!(matches!(hash_password(&"a".repeat(257)), Err(PasswordProblem::Length)));
    }

    #[tokio::test]
    async fn unknown_user_and_user_without_password_are_refused() {
        assert!(!Passwords::default().verify("correct horse battery".into(), None).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn right_password_among_guesses_that_were_sent_at_once_does_not_sign_in() {
        use std::net::{IpAddr, Ipv4Addr};

        use sluice_domain::access::{FAILURES_MAX, Role};
        use sluice_ledger::PutUser;

        let data = tempfile::tempdir().unwrap();
        let access = crate::access::access_in(data.path()).await;
        let (peer, password) = (IpAddr::V4(Ipv4Addr::LOCALHOST), "correct horse battery");
        let user = PutUser {
            name: "ann".into(),
            role: Role::Viewer,
            reveal: false,
            password: Some(hash_password(password).unwrap()),
            actor: "root".into(),
            at: access.clock.ledger_time(),
        };
        access.ledger.put_user(user).await.unwrap();
        // The guess waits behind others, which fail meanwhile.
        let held = access.passwords.permits.clone().acquire_many_owned(AT_ONCE as u32).await.unwrap();
        let guess = tokio::spawn({
            let access = access.clone();
            async move { access.sign_in_with_password("ann", password.into(), &Default::default(), peer).await }
        });
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        for _ in 0..FAILURES_MAX {
            access.record_failure(peer, "user name or password");
        }
        drop(held);
        assert_eq!(guess.await.unwrap().unwrap_err().code, "too-many-failures");
        access.ledger.clone().close().await;
    }
}
