//! Sign in by an OpenID provider: performs what [`oidc`](sluice_domain::access::oidc) decides.

mod provider;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, StatusCode};
use sluice_connectors::{CodeGrant, OpenIdError};
use sluice_domain::access::oidc::{
    Callback, Discovery, Expected, IdToken, OidcRefusal, OidcSettings, PendingSignIn, START_PATH, SignInKey,
    TokenProblem, UsedSignIns,
};
use sluice_domain::access::{CredentialKind, SESSION_LIFETIME};
use sluice_domain::template::url::{UNRESERVED, percent_encode};
use sluice_domain::time::Time;
use sluice_ledger::{AuditEntry, NewCredential, ProviderIdentity, random_token, secret_digest};

use super::sign_in::NewSession;
use super::{Access, Refusal, cookie};
use crate::clock::Clock;
use crate::revisions::Revisions;
use provider::{Fresh, Provider};

/// What a sign-in that failed is called in the audit trail.
const WRONG_SIGN_IN: &str = "sign-in by OpenID Connect";

/// Sign-ins by the configured provider. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct OpenId {
    revisions: Revisions,
    key: SignInKey,
    used: Arc<Mutex<UsedSignIns>>,
    provider: Arc<Provider>,
}

impl OpenId {
    pub(super) fn new(revisions: Revisions, clock: Clock) -> OpenId {
        OpenId {
            revisions,
            key: SignInKey::new(&random_token()),
            used: Arc::default(),
            provider: Arc::new(Provider::new(clock)),
        }
    }

    pub(super) fn settings(&self) -> Option<Arc<OidcSettings>> {
        self.revisions.current().config.oidc.clone()
    }

    fn take(&self, pending: &PendingSignIn, now: Time) -> bool {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).take(pending, now)
    }
}

/// Link on the sign-in page.
#[derive(Clone, Debug)]
pub(crate) struct ProviderLink {
    pub name: String,
    /// At the public URL, where the answer of the provider arrives too.
    pub address: String,
}

/// A sign-in that continues at the provider.
#[derive(Clone, Debug)]
pub(crate) struct StartedSignIn {
    pub address: String,
    /// `Set-Cookie`.
    pub cookie: String,
}

/// Why no session was made, and whether the caller is to blame.
enum Failed {
    /// The provider cannot be asked now. Says nothing about the caller.
    Away(String),
    Refused(OidcRefusal),
    /// The provider does not redeem the code.
    Code(String),
    Access(Refusal),
}

impl From<OidcRefusal> for Failed {
    fn from(refusal: OidcRefusal) -> Failed {
        Failed::Refused(refusal)
    }
}

impl From<OpenIdError> for Failed {
    fn from(error: OpenIdError) -> Failed {
        match error {
            OpenIdError::Away(reason) => Failed::Away(reason),
            OpenIdError::Refused(reason) => Failed::Code(reason),
        }
    }
}

impl Access {
    /// The link to the provider, if one is configured.
    pub(crate) fn provider_link(&self, next: &str) -> Option<ProviderLink> {
        let settings = self.openid.settings()?;
        let mut address = format!("{}{START_PATH}?next=", settings.public_url);
        percent_encode(next, UNRESERVED, &mut address);
        Some(ProviderLink { name: settings.name.clone(), address })
    }

    /// Starts a sign-in.
    pub(crate) async fn start_openid(&self, next: &str) -> Result<StartedSignIn, Refusal> {
        let settings = self.openid.settings().ok_or_else(not_configured)?;
        let discovery = self.openid.provider.discovery(&settings).await.map_err(|reason| away(&settings, &reason))?;
        let key = &self.openid.key;
        let pending = PendingSignIn::new(random_token(), &settings.issuer, next, self.clock.now());
        let cookie = cookie::set_pending(&pending.to_cookie(key), settings.is_https());
        Ok(StartedSignIn { address: discovery.authorization_address(&settings, &pending, key), cookie })
    }

    /// Finishes a sign-in with the answer of the provider. Returns the session and the page to open.
    pub(crate) async fn finish_openid(
        &self,
        callback: Callback,
        headers: &HeaderMap,
        peer: IpAddr,
    ) -> Result<(NewSession, String), Refusal> {
        self.check_throttle(peer)?;
        let settings = self.openid.settings().ok_or_else(not_configured)?;
        match self.try_finish(&settings, callback, headers).await {
            Ok(finished) => Ok(finished),
            Err(Failed::Access(refusal)) => Err(refusal),
            Err(Failed::Away(reason)) => Err(away(&settings, &reason)),
            Err(Failed::Code(reason)) => Err(self.refused(
                peer,
                StatusCode::UNAUTHORIZED,
                format!("the provider does not redeem the code: {reason}"),
            )),
            Err(Failed::Refused(OidcRefusal::NoRole { user })) => {
                let detail = OidcRefusal::NoRole { user: user.clone() }.to_string();
                let refusal = self.refused(peer, StatusCode::FORBIDDEN, detail);
                self.audit_refusal(user, &settings, peer).await?;
                Err(refusal)
            }
            // Any page can open this address in a browser that has started nothing: that is no guess.
            Err(Failed::Refused(refusal @ OidcRefusal::NotStarted)) => {
                Err(Refusal::new(StatusCode::UNAUTHORIZED, "sign-in-refused", refusal.to_string()))
            }
            Err(Failed::Refused(refusal)) => Err(self.refused(peer, StatusCode::UNAUTHORIZED, refusal.to_string())),
        }
    }

    async fn try_finish(
        &self,
        settings: &OidcSettings,
        callback: Callback,
        headers: &HeaderMap,
    ) -> Result<(NewSession, String), Failed> {
        let (key, now) = (&self.openid.key, self.clock.now());
        let pending = cookie::pending(headers).and_then(|text| PendingSignIn::from_cookie(text, key));
        let pending = pending.ok_or(OidcRefusal::NotStarted)?;
        let discovery = self.openid.provider.discovery(settings).await.map_err(Failed::Away)?;
        let code = pending.code(&callback, key, (&settings.issuer, discovery.names_itself), now)?;
        if !self.openid.take(&pending, now) {
            return Err(OidcRefusal::Used.into());
        }
        let verifier = pending.verifier(key);
        let grant = CodeGrant { code: &code, verifier: &verifier };
        let token = self.openid.provider.client()?.redeem(settings, &discovery, grant).await?;
        let token = self.verified(settings, &discovery, &token, &pending.nonce(key)).await?;
        let session = self.provider_session(settings, &token).await?;
        Ok((session, pending.next().to_owned()))
    }

    /// Verifies an ID token. If no key fits, the provider may have new ones: they are read again, not too often.
    async fn verified(
        &self,
        settings: &OidcSettings,
        discovery: &Discovery,
        token: &str,
        nonce: &str,
    ) -> Result<IdToken, Failed> {
        let expected = Expected {
            issuer: &settings.issuer,
            client_id: &settings.client_id,
            nonce,
            algorithms: &discovery.algorithms,
            now: self.clock.wall(),
        };
        let provider = &self.openid.provider;
        let keys = provider.keys(settings, discovery, Fresh::IfOld).await.map_err(Failed::Away)?;
        match IdToken::verify(token, &keys, expected) {
            Err(TokenProblem::UnknownKey) => {
                let keys = provider.keys(settings, discovery, Fresh::IfAllowed).await.map_err(Failed::Away)?;
                IdToken::verify(token, &keys, expected).map_err(|problem| OidcRefusal::Token(problem).into())
            }
            verified => verified.map_err(|problem| OidcRefusal::Token(problem).into()),
        }
    }

    async fn provider_session(&self, settings: &OidcSettings, token: &IdToken) -> Result<NewSession, Failed> {
        let user = settings.admit(token)?;
        let (secret, at) = (random_token(), self.clock.ledger_time());
        let new = NewCredential {
            kind: CredentialKind::Session,
            digest: secret_digest(&secret),
            name: user.name.clone(),
            role: user.role,
            reveal: user.reveal,
            provider: Some(ProviderIdentity { issuer: settings.issuer.clone(), subject: user.subject }),
            expires_at: at + SESSION_LIFETIME,
            actor: user.name.clone(),
            at,
        };
        self.ledger.issue_credential(new).await.map_err(|error| Failed::Access(error.into()))?;
        Ok(NewSession { cookie: cookie::set(&secret, settings.is_https()), user: user.name })
    }

    /// Counts a failed answer like a wrong password.
    fn refused(&self, peer: IpAddr, status: StatusCode, detail: String) -> Refusal {
        let throttled = self.record_failure(peer, WRONG_SIGN_IN);
        match throttled.retry_after_seconds {
            Some(_) => throttled,
            None => Refusal::new(status, "sign-in-refused", detail),
        }
    }

    async fn audit_refusal(&self, user: String, settings: &OidcSettings, peer: IpAddr) -> Result<(), Refusal> {
        let entry = AuditEntry {
            at: self.clock.ledger_time(),
            actor: user.clone(),
            action: "refuse".to_owned(),
            object: format!("user {user}"),
            detail: format!("no group with a role, by {}, from {peer}", settings.issuer),
        };
        Ok(self.ledger.audit(entry).await?)
    }

    /// Whether a session of a provider still counts: the provider is the configured one.
    pub(super) fn trusts(&self, identity: &ProviderIdentity) -> bool {
        self.openid.settings().is_some_and(|settings| settings.issuer == identity.issuer)
    }
}

fn not_configured() -> Refusal {
    let detail = "no OpenID provider is configured; sign in with a password or a link";
    Refusal::new(StatusCode::NOT_FOUND, "not-configured", detail)
}

/// The reason is logged; the page says what the user can do.
fn away(settings: &OidcSettings, reason: &str) -> Refusal {
    tracing::warn!(issuer = settings.issuer, reason, "the OpenID provider cannot be used");
    let name = &settings.name;
    let detail =
        format!("{name} cannot be reached now: {reason} Try again later, or sign in with a password or a link.");
    Refusal::new(StatusCode::BAD_GATEWAY, "provider-away", detail)
}
