//! Sign in by password or link, and sign out.

use std::net::IpAddr;

use axum::http::HeaderMap;
use sluice_domain::access::{CredentialKind, OWNER, Role, SESSION_LIFETIME};
use sluice_ledger::{NewCredential, RevokeCredential, TakeLink, random_token, secret_digest};

use super::identify::Session;
use super::site::is_https;
use super::{Access, Refusal, cookie};

/// A session that was just made.
#[derive(Clone, Debug)]
pub(crate) struct NewSession {
    /// `Set-Cookie`.
    pub cookie: String,
    pub user: String,
}

impl Access {
    /// Every sign-in makes a session of its own: a secret that was planted in a browser is never used.
    pub(crate) async fn sign_in_with_password(
        &self,
        name: &str,
        password: String,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<NewSession, Refusal> {
        self.check_throttle(peer)?;
        let user = self.ledger.user(name.trim().to_owned()).await?;
        let (known, stored) = user.map_or((None, None), |user| (Some(user.name), user.password));
        if !self.passwords.verify(password, stored).await {
            return Err(self.record_failure(peer, "user name or password"));
        }
        // Guesses that were sent at once passed the first check together.
        self.check_throttle(peer)?;
        match known {
            Some(name) => self.new_session(name, headers).await,
            None => Err(self.record_failure(peer, "user name or password")),
        }
    }

    /// Uses a sign-in link up.
    pub(crate) async fn sign_in_with_link(
        &self,
        link: &str,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<NewSession, Refusal> {
        self.check_throttle(peer)?;
        let take = TakeLink { digest: secret_digest(link.trim()), at: self.clock.ledger_time() };
        let Some(link) = self.ledger.take_link(take).await? else {
            let refusal = self.record_failure(peer, "sign-in link");
            let detail = "this link has been used or has expired; make another one with `sluice console`";
            return Err(if refusal.retry_after_seconds.is_some() { refusal } else { Refusal::unauthorized(detail) });
        };
        self.new_session(link.name, headers).await
    }

    async fn new_session(&self, user: String, headers: &HeaderMap) -> Result<NewSession, Refusal> {
        let (secret, at) = (random_token(), self.clock.ledger_time());
        let new = NewCredential {
            kind: CredentialKind::Session,
            digest: secret_digest(&secret),
            name: user.clone(),
            role: Role::Viewer,
            reveal: false,
            provider: None,
            expires_at: at + SESSION_LIFETIME,
            actor: user.clone(),
            at,
        };
        self.ledger.issue_credential(new).await?;
        Ok(NewSession { cookie: cookie::set(&secret, is_https(headers)), user })
    }

    /// Ends a session. Returns the `Set-Cookie` headers.
    pub(crate) async fn sign_out(&self, session: &Session, actor: &str) -> Result<[String; 2], Refusal> {
        let revoke = RevokeCredential {
            id: session.id,
            kind: CredentialKind::Session,
            actor: if actor.is_empty() { OWNER.to_owned() } else { actor.to_owned() },
            at: self.clock.ledger_time(),
        };
        self.ledger.revoke_credential(revoke).await?;
        Ok(cookie::clear())
    }
}
