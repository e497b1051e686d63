//! Users of the admin API and their credentials, as they are written and read.

use sluice_domain::access::{CredentialKind, Role};
use sluice_domain::time::Time;

/// SHA-256 of a secret. The secret itself is never stored.
pub type SecretDigest = [u8; 32];

/// Digest under which a secret is stored.
pub fn secret_digest(secret: &str) -> SecretDigest {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, secret.as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    bytes
}

/// Creates a user, or changes one. A new password ends the user's sessions.
#[derive(Clone, Debug)]
pub struct PutUser {
    pub name: String,
    pub role: Role,
    pub reveal: bool,
    /// Hash in PHC format; `None` keeps what there is.
    pub password: Option<String>,
    pub actor: String,
    pub at: Time,
}

/// Removes a user with their sessions and sign-in links.
#[derive(Clone, Debug)]
pub struct RemoveUser {
    pub name: String,
    pub actor: String,
    pub at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserRecord {
    pub name: String,
    pub role: Role,
    pub reveal: bool,
    /// Hash in PHC format; `None` if the user signs in by links only.
    pub password: Option<String>,
    pub created_at: Time,
    pub changed_at: Time,
}

/// A user at an OpenID provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderIdentity {
    pub issuer: String,
    /// The provider's own id of the user.
    pub subject: String,
}

/// Issues a credential. Expired ones are removed, and of a user's sessions the oldest beyond the maximum.
#[derive(Clone, Debug)]
pub struct NewCredential {
    pub kind: CredentialKind,
    pub digest: SecretDigest,
    /// User of a session or a link; name of a token.
    pub name: String,
    /// Of a token, and of a session that a provider vouched for; those of another session are its user's.
    pub role: Role,
    pub reveal: bool,
    /// Of a session that was opened by an OpenID provider.
    pub provider: Option<ProviderIdentity>,
    pub expires_at: Time,
    pub actor: String,
    pub at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialRecord {
    pub id: i64,
    pub kind: CredentialKind,
    pub name: String,
    pub role: Role,
    pub reveal: bool,
    /// Of a session that was opened by an OpenID provider.
    pub provider: Option<ProviderIdentity>,
    pub created_at: Time,
    pub created_by: String,
    pub expires_at: Time,
    /// Recorded at most once a minute; the time of issue if it was never used.
    pub used_at: Time,
}

/// Takes a sign-in link: it is removed, so that it counts once.
#[derive(Clone, Debug)]
pub struct TakeLink {
    pub digest: SecretDigest,
    pub at: Time,
}

/// Records the use of a credential.
#[derive(Clone, Debug)]
pub struct UseCredential {
    pub id: i64,
    pub at: Time,
}

/// Removes one credential.
#[derive(Clone, Debug)]
pub struct RevokeCredential {
    pub id: i64,
    pub kind: CredentialKind,
    pub actor: String,
    pub at: Time,
}

impl NewCredential {
    /// Action and object in the audit trail.
    pub(crate) fn audited(&self) -> (&'static str, String, String) {
        let until = format!("until {}", self.expires_at);
        match self.kind {
            CredentialKind::Session => {
                let detail = match &self.provider {
                    None => until,
                    Some(ProviderIdentity { issuer, subject }) => {
                        let by = format!("{until}, by {issuer}, subject {subject}");
                        rights(self.role, self.reveal, &by)
                    }
                };
                ("sign in", format!("user {}", self.name), detail)
            }
            CredentialKind::Token => ("add", format!("token {}", self.name), rights(self.role, self.reveal, &until)),
            CredentialKind::Link => ("add", format!("sign-in link of {}", self.name), until),
        }
    }
}

impl PutUser {
    pub(crate) fn detail(&self) -> String {
        let password = if self.password.is_some() { "new password" } else { "password unchanged" };
        rights(self.role, self.reveal, password)
    }
}

impl CredentialRecord {
    /// Object in the audit trail.
    pub(crate) fn object(&self) -> String {
        match self.kind {
            CredentialKind::Session => format!("session {} of {}", self.id, self.name),
            CredentialKind::Token => format!("token {}", self.name),
            CredentialKind::Link => format!("sign-in link of {}", self.name),
        }
    }
}

fn rights(role: Role, reveal: bool, rest: &str) -> String {
    let reveal = if reveal { " with reveal" } else { "" };
    format!("role {role}{reveal}, {rest}")
}
