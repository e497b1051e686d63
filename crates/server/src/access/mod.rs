//! Access: who makes a request to the admin server.
//!
//! In: heads of requests; passwords, sign-in links and answers of an OpenID provider.
//! Out: a caller, or a refusal.
//! Touches: ledger: users, credentials, audit; connectors: the client of an OpenID provider.
//! Never: decides what a caller may do; `operate` does, by the rules of the domain.
//! If the process dies here: a sign-in has its session, or its link is used up and another one is made.

mod cookie;
mod identify;
mod openid;
mod password;
mod sign_in;
mod site;

use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use sluice_domain::access::{Caller, FailedTokens, FailureReport};
use sluice_ledger::{AuditEntry, Ledger};

use crate::admin_token::AdminToken;
use crate::clock::Clock;
use crate::revisions::Revisions;

pub(crate) use cookie::clear_pending;
pub(crate) use identify::{Identified, Session};
pub(crate) use openid::{ProviderLink, StartedSignIn};
pub(crate) use password::{PasswordProblem, hash_password};

/// Prefix of API tokens, so that scanners for leaked secrets find them.
pub(crate) const TOKEN_PREFIX: &str = "slu_";

/// Why a request is not served.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub status: StatusCode,
    /// Stable.
    pub code: &'static str,
    pub detail: String,
    pub retry_after_seconds: Option<u64>,
}

impl Refusal {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Refusal {
        Refusal { status, code, detail: detail.into(), retry_after_seconds: None }
    }

    fn unauthorized(detail: &str) -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }
}

impl From<sluice_ledger::Error> for Refusal {
    fn from(error: sluice_ledger::Error) -> Refusal {
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "ledger", error.to_string())
    }
}

/// Finds out who calls the admin server. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    token: AdminToken,
    allowed_hosts: Arc<[String]>,
    failed: Arc<Mutex<FailedTokens>>,
    passwords: password::Passwords,
    openid: openid::OpenId,
    clock: Clock,
    ledger: Ledger,
}

impl Access {
    pub(crate) fn new(
        token: AdminToken,
        allowed_hosts: Vec<String>,
        clock: Clock,
        ledger: Ledger,
        revisions: Revisions,
    ) -> Access {
        Access {
            token,
            allowed_hosts: allowed_hosts.into(),
            failed: Arc::default(),
            passwords: password::Passwords::default(),
            openid: openid::OpenId::new(revisions, clock.clone()),
            clock,
            ledger,
        }
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, FailedTokens> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses an address that has guessed too often.
    fn check_throttle(&self, peer: std::net::IpAddr) -> Result<(), Refusal> {
        match self.failures().throttled(peer, self.clock.now()) {
            None => Ok(()),
            Some(wait) => Err(throttled(wait)),
        }
    }

    /// Counts a wrong secret. `what` names it in the audit trail.
    fn record_failure(&self, peer: std::net::IpAddr, what: &'static str) -> Refusal {
        let now = self.clock.now();
        let (wait, report) = {
            let mut failed = self.failures();
            (failed.throttled(peer, now), failed.record(peer, now))
        };
        if let Some(report) = report {
            self.report(peer, what, report);
        }
        match wait {
            Some(wait) => throttled(wait),
            None => Refusal::unauthorized(&format!("wrong {what}")),
        }
    }

    fn report(&self, peer: std::net::IpAddr, what: &'static str, report: FailureReport) {
        let FailureReport { failures, unreported } = report;
        tracing::warn!(address = %peer, failures, unreported, "wrong {what}");
        let others = if unreported == 0 { String::new() } else { format!(", {unreported} from other addresses") };
        let entry = AuditEntry {
            at: self.clock.ledger_time(),
            actor: sluice_domain::access::OWNER.to_owned(),
            action: "refuse".to_owned(),
            object: "admin API".to_owned(),
            detail: format!("wrong {what} from {peer}, {failures} since the last entry{others}"),
        };
        let ledger = self.ledger.clone();
        tokio::spawn(async move {
            if let Err(error) = ledger.audit(entry).await {
                tracing::warn!(%error, "wrong {what} not written to the audit trail");
            }
        });
    }
}

fn throttled(wait: std::time::Duration) -> Refusal {
    let seconds = wait.as_secs().max(1);
    let detail = format!("too many wrong secrets from this address; try again in {seconds} s");
    Refusal {
        retry_after_seconds: Some(seconds),
        ..Refusal::new(StatusCode::TOO_MANY_REQUESTS, "too-many-failures", detail)
    }
}

/// Caller of a request, as its extension.
#[derive(Clone, Debug)]
pub(crate) struct RequestCaller(pub Caller);

/// On a new ledger, without users.
#[cfg(test)]
pub(crate) async fn access_in(data: &std::path::Path) -> Access {
    use sluice_ledger::{LedgerOptions, RootKey};

    use crate::config::{EnvironmentThenFiles, SecretStore};
    use crate::revisions::LoadedRevision;

    let clock = Clock::start();
    let options = LedgerOptions::quiet(clock.for_ledger()).with_root_key(RootKey::generate());
    let ledger = Ledger::open(data, options).unwrap();
    clock.follow(&ledger).await.unwrap();
    let live = LoadedRevision::new(sluice_domain::config::Config::default(), SecretStore::default()).unwrap();
    let revisions = Revisions::new(live, Arc::new(EnvironmentThenFiles::new(data)), ledger.pseudonym_key());
    Access::new(AdminToken::generate(), vec![], clock, ledger, revisions)
}
