//! Users and their credentials, without secrets.

use serde::{Deserialize, Serialize};
use sluice_ledger::{CredentialRecord, UserRecord};
use utoipa::ToSchema;

/// Who asks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CallerView {
    pub name: String,
    /// `viewer`, `operator` or `admin`.
    pub role: String,
    /// May see personal data unmasked.
    pub reveal: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct UserView {
    pub name: String,
    pub role: String,
    pub reveal: bool,
    /// `false` if the user signs in by links only.
    pub has_password: bool,
    pub created_at: String,
    pub changed_at: String,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    pub id: i64,
    pub name: String,
    pub role: String,
    pub reveal: bool,
    pub created_at: String,
    pub created_by: String,
    pub expires_at: String,
    /// To the minute; absent if it was never used.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used_at: Option<String>,
}

/// A new API token.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewTokenView {
    /// Shown once.
    pub secret: String,
    #[serde(flatten)]
    pub token: TokenView,
}

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    pub id: i64,
    pub user: String,
    /// OpenID provider that opened it; absent for a password or a link.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub issuer: Option<String>,
    pub created_at: String,
    pub expires_at: String,
    /// To the minute.
    pub used_at: String,
}

/// A sign-in link, which counts once.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LinkView {
    /// Below the address of the admin server.
    pub path: String,
    pub user: String,
    pub expires_at: String,
}

impl From<UserRecord> for UserView {
    fn from(user: UserRecord) -> UserView {
        UserView {
            name: user.name,
            role: user.role.to_string(),
            reveal: user.reveal,
            has_password: user.password.is_some(),
            created_at: user.created_at.to_string(),
            changed_at: user.changed_at.to_string(),
        }
    }
}

impl From<CredentialRecord> for TokenView {
    fn from(record: CredentialRecord) -> TokenView {
        TokenView {
            id: record.id,
            name: record.name,
            role: record.role.to_string(),
            reveal: record.reveal,
            created_at: record.created_at.to_string(),
            created_by: record.created_by,
            expires_at: record.expires_at.to_string(),
            used_at: (record.used_at > record.created_at).then(|| record.used_at.to_string()),
        }
    }
}

impl From<CredentialRecord> for SessionView {
    fn from(record: CredentialRecord) -> SessionView {
        SessionView {
            id: record.id,
            user: record.name,
            issuer: record.provider.map(|provider| provider.issuer),
            created_at: record.created_at.to_string(),
            expires_at: record.expires_at.to_string(),
            used_at: record.used_at.to_string(),
        }
    }
}
