//! Who makes a request: the admin token, an API token or a session.

use std::net::IpAddr;

use axum::http::header::{self, HeaderMap};
use axum::http::{StatusCode, request};
use sluice_domain::access::{self, Caller, CredentialKind, Identity, OWNER};
use sluice_ledger::{CredentialRecord, UseCredential, secret_digest};

use super::site::{is_same_origin, single};
use super::{Access, Refusal, TOKEN_PREFIX, cookie};

/// A request whose caller is known.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    pub caller: Caller,
    /// Absent for a token.
    pub session: Option<Session>,
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub id: i64,
    /// Value that forms of this session carry.
    pub form_token: String,
}

impl Access {
    /// Checks that the request was meant for this node, and finds out who makes it.
    pub(crate) async fn identify(&self, head: &request::Parts, peer: IpAddr) -> Result<Identified, Refusal> {
        self.check_site(head)?;
        if let Some(presented) = bearer(&head.headers)? {
            let caller = self.by_token(presented, peer).await?;
            return Ok(Identified { caller, session: None });
        }
        match cookie::session_secret(&head.headers) {
            Some(secret) => self.by_session(secret).await,
            None => Err(Refusal::unauthorized("send a token: Authorization: Bearer …")),
        }
    }

    /// Checks the request only; for pages that need no caller.
    pub(crate) fn check_visitor(&self, head: &request::Parts) -> Result<(), Refusal> {
        self.check_site(head)
    }

    async fn by_token(&self, presented: &str, peer: IpAddr) -> Result<Caller, Refusal> {
        // A generated token cannot be guessed, so another user of the same address does not lock its holder out.
        let is_owner = self.token.value().matches(presented);
        if is_owner && (self.token.is_generated() || self.check_throttle(peer).is_ok()) {
            return Ok(Caller::owner());
        }
        if presented.starts_with(TOKEN_PREFIX) {
            let found = self.valid(presented, CredentialKind::Token).await?;
            return match found {
                Some(token) => {
                    let identity = Identity::Token(token.name);
                    Ok(Caller { identity, role: token.role, reveal: token.reveal })
                }
                None => Err(self.record_failure(peer, "API token")),
            };
        }
        Err(self.record_failure(peer, "admin token"))
    }

    async fn by_session(&self, secret: &str) -> Result<Identified, Refusal> {
        let ended = || Refusal::unauthorized("the session has ended; sign in again");
        let record = self.valid(secret, CredentialKind::Session).await?.ok_or_else(ended)?;
        let caller = match (&record.provider, record.name.as_str()) {
            // Its role is that of the sign-in. The name has a prefix that no local user has.
            (Some(provider), name) => {
                if !self.trusts(provider) {
                    return Err(ended());
                }
                Caller { identity: Identity::User(name.to_owned()), role: record.role, reveal: record.reveal }
            }
            (None, OWNER) => Caller::owner(),
            (None, name) => {
                let user = self.ledger.user(name.to_owned()).await?.ok_or_else(ended)?;
                Caller { identity: Identity::User(user.name), role: user.role, reveal: user.reveal }
            }
        };
        let session = Session { id: record.id, form_token: form_token(secret) };
        Ok(Identified { caller, session: Some(session) })
    }

    /// The credential of a secret if it is valid now. Its use is recorded.
    async fn valid(&self, secret: &str, kind: CredentialKind) -> Result<Option<CredentialRecord>, Refusal> {
        let now = self.clock.ledger_time();
        let found = self.ledger.credential(secret_digest(secret)).await?;
        let is_valid = |record: &CredentialRecord| {
            record.kind == kind && access::is_valid(kind, record.expires_at, record.used_at, now)
        };
        let found = found.filter(is_valid);
        if let Some(record) = found.as_ref().filter(|record| access::use_is_recorded(record.used_at, now)) {
            let used = UseCredential { id: record.id, at: now };
            // A full disk must not keep operators from looking at the node.
            if let Err(error) = self.ledger.use_credential(used).await {
                tracing::warn!(%error, "the use of a session or token is not recorded");
            }
        }
        Ok(found)
    }

    /// Whether the caller of a request that is still being answered would be admitted now. Nothing is recorded; if the ledger
    /// cannot be read, nothing has changed.
    pub(crate) async fn still_admits(&self, head: &request::Parts) -> bool {
        let now = self.clock.ledger_time();
        let (secret, kind) = match bearer(&head.headers) {
            // The admin token is that of the process.
            Ok(Some(presented)) if !presented.starts_with(TOKEN_PREFIX) => return true,
            Ok(Some(presented)) if self.token.value().matches(presented) => return true,
            Ok(Some(presented)) => (presented, CredentialKind::Token),
            Ok(None) => (cookie::session_secret(&head.headers).unwrap_or_default(), CredentialKind::Session),
            Err(_) => return false,
        };
        let found = match self.ledger.credential(secret_digest(secret)).await {
            Ok(Some(record)) if record.kind == kind => record,
            Ok(_) => return false,
            Err(_) => return true,
        };
        access::is_valid(kind, found.expires_at, found.used_at, now)
            && found.provider.as_ref().is_none_or(|provider| self.trusts(provider))
    }
}

impl Identified {
    /// Refuses a change that a session asks for unless a page of this node made the request, with the session's form token. A
    /// token in a header cannot be sent by a page of another site.
    pub(crate) fn check_form(&self, headers: &HeaderMap, presented: Option<&str>) -> Result<(), Refusal> {
        let Some(session) = &self.session else { return Ok(()) };
        let is_ours = presented.is_some_and(|presented| constant_time_eq(presented, &session.form_token));
        if is_same_origin(headers) && is_ours {
            return Ok(());
        }
        Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "form-token",
            "this request does not come from a page of this session; nothing was done. Reload the page and try again",
        ))
    }
}

fn constant_time_eq(a: &str, b: &str) -> bool {
    sluice_domain::verify::SecretValue::from(b.to_owned()).matches(a)
}

/// Derived from the secret of the session, which nobody else knows.
fn form_token(secret: &str) -> String {
    let digest = secret_digest(&format!("form token of {secret}"));
    data_encoding::HEXLOWER.encode(&digest)
}

/// The token. A repeated header is refused: whoever checks another one of them must not disagree about the caller.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let value = single(headers, header::AUTHORIZATION)
        .map_err(|()| Refusal::unauthorized("send the token once: Authorization: Bearer …"))?;
    let token =
        value.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Ok(token.map(|(_, token)| token.trim()))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use axum::http::Request;
    use sluice_domain::access::{Role, SESSION_LIFETIME};
    use sluice_ledger::NewCredential;

    use super::*;
    use crate::access::access_in;

    #[tokio::test(flavor = "multi_thread")]
    async fn ledger_that_cannot_be_written_does_not_lock_operators_out() {
        let data = tempfile::tempdir().unwrap();
        let access = access_in(data.path()).await;
        let at = access.clock.ledger_time() - Duration::from_secs(120);
        let new = NewCredential {
            kind: CredentialKind::Session,
            digest: secret_digest("secret"),
            name: OWNER.to_owned(),
            role: Role::Viewer,
            reveal: false,
            provider: None,
            expires_at: at + SESSION_LIFETIME,
            actor: OWNER.to_owned(),
            at,
        };
        access.ledger.issue_credential(new).await.unwrap();
        let request = Request::builder().uri("/").header("host", "localhost").header("cookie", "sluice_session=secret");
        let head = request.body(()).unwrap().into_parts().0;
        // From here on every write fails.
        access.ledger.clone().close().await;
        let identified = access.identify(&head, IpAddr::V4(Ipv4Addr::LOCALHOST)).await.unwrap();
        assert_eq!(identified.caller, Caller::owner());
        assert!(access.still_admits(&head).await);
    }
}
