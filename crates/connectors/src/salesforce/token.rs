//! OAuth token of one organisation: fetched on first use, cached until refused.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use sluice_domain::destination::SalesforceAuth;
use sluice_domain::outcome::{Failure, FailureClass, Outcome};
use sluice_domain::time::Time;
use sluice_domain::verify::SecretValue;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::request::bearer;
use super::response;
use crate::outbound::{AddressScope, Outbound, Request, SendProgress};
use sluice_domain::template::url::percent_encode;

/// Access token as a header value.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) authorization: HeaderValue,
    /// Generation; only the first caller whose token of this generation is refused fetches a new one.
    generation: u64,
}

/// Token source and the current token.
#[derive(Debug)]
pub(crate) struct Tokens {
    source: Source,
    current: RwLock<Option<Token>>,
    /// Held by the caller that fetches. Stores the failure of the last fetch: callers that waited for the lock
    /// share it, as they share a fetched token.
    fetching: Mutex<Option<Outcome>>,
    /// Number of completed fetches, successful or not.
    fetch_count: AtomicU64,
}

#[derive(Debug)]
enum Source {
    Static,
    ClientCredentials { url: Url, client_id: String, client_secret: SecretValue },
}

impl Tokens {
    /// The error names the invalid key.
    pub(super) fn new(instance_url: &str, auth: &SalesforceAuth) -> Result<Tokens, String> {
        let (source, current) = match auth {
            SalesforceAuth::Token(token) => {
                let authorization = bearer(token.expose())
                    .ok_or("auth: the token has a character that is not allowed in a header, such as a line break")?;
                (Source::Static, Some(Token { authorization, generation: 0 }))
            }
            SalesforceAuth::ClientCredentials { client_id, client_secret } => {
                let url = Url::parse(&format!("{instance_url}/services/oauth2/token"))
                    .map_err(|error| format!("instance_url: is not a URL: {error}"))?;
                let (client_id, client_secret) = (client_id.clone(), client_secret.clone());
                (Source::ClientCredentials { url, client_id, client_secret }, None)
            }
        };
        Ok(Tokens { source, current: RwLock::new(current), fetching: Mutex::new(None), fetch_count: AtomicU64::new(0) })
    }

    /// True if a refused token can be renewed.
    pub(super) fn renewable(&self) -> bool {
        matches!(self.source, Source::ClientCredentials { .. })
    }

    /// Current token in plain text, for redaction.
    pub(super) fn text(&self) -> Option<String> {
        let token = self.usable(None)?;
        token.authorization.to_str().ok()?.strip_prefix("Bearer ").map(str::to_owned)
    }

    /// A token other than `refused`. Concurrent callers share one fetch and its result. The error is the outcome
    /// of the effect, which was not sent.
    pub(super) async fn get(
        &self,
        outbound: &Outbound,
        refused: Option<&Token>,
        deadline: Instant,
        now: Time,
    ) -> Result<Token, Outcome> {
        if let Some(token) = self.usable(refused) {
            return Ok(token);
        }
        let fetches_before = self.fetch_count.load(Ordering::Acquire);
        let Ok(mut last_failure) = timeout_at(deadline, self.fetching.lock()).await else {
            let message = "No access token before the timeout. Nothing was sent.";
            let failure = Failure::new(FailureClass::Retryable, "timeout", message);
            return Err(Outcome::Retry { failure, after: None });
        };
        if let Some(token) = self.usable(refused) {
            return Ok(token);
        }
        let fetches = self.fetch_count.load(Ordering::Acquire);
        if fetches > fetches_before
            && let Some(failed) = last_failure.as_ref()
        {
            return Err(failed.clone());
        }
        let fetched = self.fetch(outbound, fetches + 1, deadline, now).await;
        *last_failure = fetched.as_ref().err().cloned();
        if let Ok(token) = &fetched {
            *self.current.write().expect("no holder of this lock panics") = Some(token.clone());
        }
        self.fetch_count.store(fetches + 1, Ordering::Release);
        fetched
    }

    fn usable(&self, refused: Option<&Token>) -> Option<Token> {
        let current = self.current.read().expect("no holder of this lock panics");
        current.as_ref().filter(|token| refused.is_none_or(|refused| refused.generation != token.generation)).cloned()
    }

    async fn fetch(
        &self,
        outbound: &Outbound,
        generation: u64,
        deadline: Instant,
        now: Time,
    ) -> Result<Token, Outcome> {
        let Source::ClientCredentials { url, client_id, client_secret } = &self.source else {
            let message = "Salesforce refuses the configured token. Replace it.";
            return Err(Outcome::Reject { failure: Failure::new(FailureClass::Auth, "INVALID_SESSION_ID", message) });
        };
        let host = url.host_str().unwrap_or_default();
        let response = outbound.send(request(url, client_id, client_secret), deadline).await.map_err(|error| {
            let progress = error.progress;
            let failure = error.into_failure();
            let failure = Failure { message: format!("No token: {}", failure.message), ..failure };
            match progress {
                SendProgress::Refused => Outcome::Reject { failure },
                // Even if the token request arrived, the effect was not sent.
                SendProgress::NotSent | SendProgress::Sent => Outcome::Retry { failure, after: None },
            }
        })?;
        let text = response::token(&response, host, now)?;
        let authorization = bearer(&text).ok_or_else(|| {
            let message = "No token: Salesforce returned a token that is not valid in a header.";
            Outcome::Retry { failure: Failure::new(FailureClass::Conflict, "invalid-token", message), after: None }
        })?;
        Ok(Token { authorization, generation })
    }
}

fn request(url: &Url, client_id: &str, client_secret: &SecretValue) -> Request {
    const UNRESERVED: &[u8] = b"-._~";
    let mut body = String::from("grant_type=client_credentials&client_id=");
    percent_encode(client_id, UNRESERVED, &mut body);
    body.push_str("&client_secret=");
    percent_encode(client_secret.expose(), UNRESERVED, &mut body);
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    Request { method: Method::POST, url: url.clone(), headers, body: body.into(), scope: AddressScope::Anywhere }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_request_is_a_form_and_debug_output_omits_the_secret() {
        let auth = SalesforceAuth::ClientCredentials { client_id: "3MVG9.x".into(), client_secret: "s&c=r e".into() };
        let tokens = Tokens::new("https://acme.my.salesforce.com", &auth).unwrap();
        let Source::ClientCredentials { url, client_id, client_secret } = &tokens.source else { panic!("{tokens:?}") };
        let request = request(url, client_id, client_secret);
        assert_eq!(request.url.as_str(), "https://acme.my.salesforce.com/services/oauth2/token");
        assert_eq!(request.body, "grant_type=client_credentials&client_id=3MVG9.x&client_secret=s%26c%3Dr%20e");
        assert!(!format!("{tokens:?}").contains("s&c=r e"));
    }
}
