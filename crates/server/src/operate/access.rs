//! Access to the admin API: host, origin and token of a request.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::Request;
use axum::http::header::{self, HeaderMap, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use sluice_domain::access::{self, FailedTokens, FailureReport};
use sluice_domain::verify::SecretValue;
use sluice_ledger::{AuditEntry, Ledger};

use super::routes::problem;
use crate::admin_token::AdminToken;
use crate::clock::Clock;

/// Settings of the admin listener.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    /// Configured by the operator; one in the data directory otherwise.
    pub token: Option<SecretValue>,
    /// Host names, besides those of loopback, that callers may use.
    pub allowed_hosts: Vec<String>,
    /// Applies to the request head and to idle connections.
    pub head_timeout: Duration,
    pub body_timeout: Duration,
    pub connections_max: usize,
}

impl Default for AdminSettings {
    fn default() -> AdminSettings {
        AdminSettings {
            token: None,
            allowed_hosts: vec![],
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(15),
            connections_max: 512,
        }
    }
}

/// Decides on requests to the admin API. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Access {
    token: AdminToken,
    allowed_hosts: Arc<[String]>,
    failed: Arc<Mutex<FailedTokens>>,
    clock: Clock,
    ledger: Ledger,
}

impl Access {
    pub(super) fn new(token: AdminToken, allowed_hosts: Vec<String>, clock: Clock, ledger: Ledger) -> Access {
        Access { token, allowed_hosts: allowed_hosts.into(), failed: Arc::default(), clock, ledger }
    }

    /// Checks that the request was meant for this node, and that the caller has the token.
    pub(super) fn check(&self, request: &Request, peer: IpAddr) -> Result<(), Box<Response>> {
        self.check_site(request).and_then(|()| self.check_token(request.headers(), peer))
    }

    /// Rejects requests that a web page of another site caused.
    fn check_site(&self, request: &Request) -> Result<(), Box<Response>> {
        let headers = request.headers();
        let foreign = headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
        if foreign {
            return refuse(StatusCode::FORBIDDEN, "cross-site", "cross-site requests are rejected");
        }
        let named = single(headers, header::HOST).ok().flatten();
        let target = request.uri().authority().map(|authority| authority.as_str());
        let host = match (named, target) {
            (Some(host), None) => host,
            (Some(host), Some(target)) if host.eq_ignore_ascii_case(target) => host,
            _ => return refuse(StatusCode::BAD_REQUEST, "host-invalid", "send exactly one Host header"),
        };
        if !access::host_is_allowed(host, &self.allowed_hosts) {
            let detail = format!(
                "this node does not serve the host `{host}`; use localhost, or start the node with --admin-allowed-hosts"
            );
            return refuse(StatusCode::MISDIRECTED_REQUEST, "host-not-allowed", &detail);
        }
        match single(headers, header::ORIGIN) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) if access::origin_matches(origin, host) => Ok(()),
            _ => refuse(StatusCode::FORBIDDEN, "cross-site", "the Origin header does not name this node"),
        }
    }

    fn check_token(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), Box<Response>> {
        let Some(presented) = bearer(headers) else {
            return unauthorized("send the admin token once: Authorization: Bearer …");
        };
        let now = self.clock.now();
        let matches = self.token.value().matches(presented);
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let throttled = failed.throttled(peer, now);
        // A generated token cannot be guessed, so another user of the same address does not lock its holder out.
        if matches && (throttled.is_none() || self.token.is_generated()) {
            return Ok(());
        }
        let report = failed.record(peer, now);
        drop(failed);
        if let Some(report) = report {
            self.report(peer, report);
        }
        match throttled {
            None => unauthorized("wrong admin token"),
            Some(wait) => {
                let seconds = wait.as_secs().max(1);
                let detail = format!("too many wrong admin tokens from this address; try again in {seconds} s");
                let mut refusal = problem(StatusCode::TOO_MANY_REQUESTS, "too-many-failures", &detail);
                refusal.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                Err(Box::new(refusal))
            }
        }
    }

    fn report(&self, peer: IpAddr, report: FailureReport) {
        let FailureReport { failures, unreported } = report;
        tracing::warn!(address = %peer, failures, unreported, "wrong admin token");
        let others = if unreported == 0 { String::new() } else { format!(", {unreported} from other addresses") };
        let entry = AuditEntry {
            at: self.clock.ledger_time(),
            actor: "admin".to_owned(),
            action: "refuse".to_owned(),
            object: "admin API".to_owned(),
            detail: format!("wrong token from {peer}, {failures} since the last entry{others}"),
        };
        let ledger = self.ledger.clone();
        tokio::spawn(async move {
            if let Err(error) = ledger.audit(entry).await {
                tracing::warn!(%error, "wrong admin token not written to the audit trail");
            }
        });
    }
}

/// The value of a header that may occur once; an error if it is repeated or not text.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        _ => Err(()),
    }
}

/// The token; none if the header is repeated: whoever checks another one of them must not disagree about the caller.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = single(headers, header::AUTHORIZATION).ok()??;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn refuse(status: StatusCode, code: &str, detail: &str) -> Result<(), Box<Response>> {
    Err(Box::new(problem(status, code, detail)))
}

fn unauthorized(detail: &str) -> Result<(), Box<Response>> {
    let mut refusal = problem(StatusCode::UNAUTHORIZED, "unauthorized", detail);
    refusal.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(refusal))
}
