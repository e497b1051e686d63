//! Users, API tokens, sessions and sign-in links.

use serde::{Deserialize, Serialize};
use sluice_domain::access::{
    CredentialKind, Identity, LINK_LIFETIME, OWNER, Permission, Role, TOKEN_LIFETIME_DEFAULT, TOKEN_LIFETIME_MAX,
    TOKENS_MAX, USERS_MAX, check_user_name,
};
use sluice_domain::unit;
use sluice_ledger::{NewCredential, PutUser, RemoveUser, RevokeCredential, random_token, secret_digest};
use utoipa::ToSchema;

use crate::access::{PasswordProblem, TOKEN_PREFIX, hash_password};
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{LinkView, NewTokenView, TokenView, UserView};

/// A user to add or change.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UserRequest {
    pub name: String,
    /// `viewer`, `operator` or `admin`.
    pub role: String,
    /// May see personal data unmasked.
    #[serde(default)]
    pub reveal: bool,
    /// At least 12 characters; absent, what there is stays. A user without a password signs in by links.
    #[serde(default)]
    pub password: Option<String>,
    #[serde(default)]
    pub actor: String,
}

/// An API token to add.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Shown in the audit trail as `token:NAME`.
    pub name: String,
    /// `viewer`, `operator` or `admin`.
    pub role: String,
    /// May see personal data unmasked.
    #[serde(default)]
    pub reveal: bool,
    /// Lifetime such as `30d`: 90 days by default, 366 at most.
    #[serde(default)]
    pub r#for: Option<String>,
    #[serde(default)]
    pub actor: String,
}

impl Operator {
    /// Adds a user, or changes one. A new password ends the user's sessions.
    pub async fn put_user(&self, request: UserRequest) -> Result<UserView, OperateError> {
        self.permit(Permission::Administer)?;
        check_user_name(&request.name).map_err(|problem| OperateError::Invalid(problem.to_string()))?;
        let role = parse_role(&request.role)?;
        let users = self.ledger.users().await?;
        if users.len() >= USERS_MAX && !users.iter().any(|user| user.name == request.name) {
            return Err(OperateError::Refused("too-many", format!("there are {USERS_MAX} users; remove one first")));
        }
        let password = match request.password {
            None => None,
            Some(password) => {
                let hashed = tokio::task::spawn_blocking(move || hash_password(&password)).await;
                let hashed = hashed.map_err(|error| OperateError::Invalid(error.to_string()))?;
                Some(hashed.map_err(|problem: PasswordProblem| OperateError::Invalid(problem.to_string()))?)
            }
        };
        let (name, reveal, actor) = (request.name.clone(), request.reveal, self.actor(&request.actor));
        self.ledger.put_user(PutUser { name, role, reveal, password, actor, at: self.clock.ledger_time() }).await?;
        let stored = self.ledger.user(request.name.clone()).await?;
        stored.map(UserView::from).ok_or_else(|| unknown_user(&request.name))
    }

    /// Removes a user with their sessions.
    pub async fn remove_user(&self, name: &str, actor: &str) -> Result<(), OperateError> {
        self.permit(Permission::Administer)?;
        let (name, actor, at) = (name.to_owned(), self.actor(actor), self.clock.ledger_time());
        match self.ledger.remove_user(RemoveUser { name: name.clone(), actor, at }).await? {
            true => Ok(()),
            false => Err(unknown_user(&name)),
        }
    }

    /// Adds an API token. Its secret is in the result and nowhere else.
    pub async fn add_token(&self, request: TokenRequest) -> Result<NewTokenView, OperateError> {
        self.permit(Permission::Administer)?;
        check_user_name(&request.name).map_err(|problem| OperateError::Invalid(problem.to_string()))?;
        let role = parse_role(&request.role)?;
        let lasts = match request.r#for.as_deref().map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => unit::duration(text).map_err(|problem| OperateError::Invalid(problem.to_string()))?,
            None => TOKEN_LIFETIME_DEFAULT,
        };
        if lasts > TOKEN_LIFETIME_MAX {
            return Err(OperateError::Invalid("a token is valid for 366 days at most".into()));
        }
        let at = self.clock.ledger_time();
        let mut tokens = self.ledger.credentials(CredentialKind::Token).await?;
        // Those that have expired go with the next one that is issued.
        tokens.retain(|token| token.expires_at > at);
        if tokens.len() >= TOKENS_MAX {
            return Err(OperateError::Refused("too-many", format!("there are {TOKENS_MAX} tokens; revoke one first")));
        }
        if tokens.iter().any(|token| token.name == request.name) {
            let message = format!("there is a token `{}`; revoke it first, or choose another name", request.name);
            return Err(OperateError::Refused("name-taken", message));
        }
        let secret = format!("{TOKEN_PREFIX}{}", random_token());
        let new = NewCredential {
            kind: CredentialKind::Token,
            digest: secret_digest(&secret),
            name: request.name,
            role,
            reveal: request.reveal,
            provider: None,
            expires_at: at + lasts,
            actor: self.actor(&request.actor),
            at,
        };
        let record = self.ledger.issue_credential(new).await?;
        Ok(NewTokenView { secret, token: TokenView::from(record) })
    }

    /// Revokes an API token or a session, by its number.
    pub async fn revoke(&self, kind: CredentialKind, id: &str, actor: &str) -> Result<(), OperateError> {
        self.permit(Permission::Administer)?;
        let unknown = || OperateError::NotFound(format!("there is no {} `{id}`", kind.as_str()));
        let number: i64 = id.parse().map_err(|_| unknown())?;
        let (actor, at) = (self.actor(actor), self.clock.ledger_time());
        match self.ledger.revoke_credential(RevokeCredential { id: number, kind, actor, at }).await? {
            true => Ok(()),
            false => Err(unknown()),
        }
    }

    /// Makes a sign-in link for a user, or for the holder of the admin token. It counts once. Only that holder makes one for
    /// themselves: an administrator would act as somebody else, with every permission.
    pub async fn add_link(&self, user: Option<&str>, actor: &str) -> Result<LinkView, OperateError> {
        self.permit(Permission::Administer)?;
        let name = user.unwrap_or(OWNER);
        if name == OWNER && self.caller.identity != Identity::Owner {
            let detail =
                "only the holder of the admin token makes a link for themselves; name a user. Nothing was done";
            return Err(OperateError::Forbidden(detail.to_owned()));
        }
        if name != OWNER && self.ledger.user(name.to_owned()).await?.is_none() {
            return Err(unknown_user(name));
        }
        let (secret, at) = (random_token(), self.clock.ledger_time());
        let new = NewCredential {
            kind: CredentialKind::Link,
            digest: secret_digest(&secret),
            name: name.to_owned(),
            role: Role::Viewer,
            reveal: false,
            provider: None,
            expires_at: at + LINK_LIFETIME,
            actor: self.actor(actor),
            at,
        };
        let record = self.ledger.issue_credential(new).await?;
        Ok(LinkView {
            path: format!("/sign-in?link={secret}"),
            user: record.name,
            expires_at: record.expires_at.to_string(),
        })
    }
}

fn parse_role(word: &str) -> Result<Role, OperateError> {
    let known = Role::ALL.map(Role::as_str).join(", ");
    Role::parse(word.trim()).ok_or_else(|| OperateError::Invalid(format!("`{word}` is not a role; use one of {known}")))
}

fn unknown_user(name: &str) -> OperateError {
    OperateError::NotFound(format!("there is no user `{name}`; `sluice users` lists them"))
}
