//! The token of one organisation: fetched when first needed, kept until it is refused.

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
use crate::text::percent_encode;

/// A token, as a header.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) authorization: HeaderValue,
    /// Which one this is, so that only the first who sees it refused fetches another.
    number: u64,
}

/// Where tokens come from, and the one in use.
#[derive(Debug)]
pub(crate) struct Tokens {
    source: Source,
    current: RwLock<Option<Token>>,
    /// Held by the one caller that fetches. Remembers how the last fetch failed, for those who were
    /// waiting on it: they share its failure as they would have shared its token.
    fetching: Mutex<Option<Outcome>>,
    /// Fetches that ended, either way.
    fetched: AtomicU64,
}

#[derive(Debug)]
enum Source {
    Given,
    ClientCredentials { url: Url, client_id: String, client_secret: SecretValue },
}

impl Tokens {
    /// For an organisation, or says which key of it is wrong.
    pub(super) fn new(instance_url: &str, auth: &SalesforceAuth) -> Result<Tokens, String> {
        let (source, current) = match auth {
            SalesforceAuth::Token(token) => {
                let authorization = bearer(token.expose())
                    .ok_or("auth: the token has a character that no header may have, such as a line break")?;
                (Source::Given, Some(Token { authorization, number: 0 }))
            }
            SalesforceAuth::ClientCredentials { client_id, client_secret } => {
                let url = Url::parse(&format!("{instance_url}/services/oauth2/token"))
                    .map_err(|error| format!("instance_url: is not a URL: {error}"))?;
                let (client_id, client_secret) = (client_id.clone(), client_secret.clone());
                (Source::ClientCredentials { url, client_id, client_secret }, None)
            }
        };
        Ok(Tokens { source, current: RwLock::new(current), fetching: Mutex::new(None), fetched: AtomicU64::new(0) })
    }

    /// Whether a refused token can be replaced by a better one.
    pub(super) fn renewable(&self) -> bool {
        matches!(self.source, Source::ClientCredentials { .. })
    }

    /// The token in use, to keep it out of messages.
    pub(super) fn text(&self) -> Option<String> {
        let token = self.usable(None)?;
        token.authorization.to_str().ok()?.strip_prefix("Bearer ").map(str::to_owned)
    }

    /// A token other than `refused`, fetched unless there is one. However many ask at once, one
    /// fetches and all share what it got. The error is what it means for the effect: not sent.
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
        let seen = self.fetched.load(Ordering::Acquire);
        let Ok(mut last_failure) = timeout_at(deadline, self.fetching.lock()).await else {
            let message = "No token within this call's time; nothing was sent.";
            let failure = Failure::new(FailureClass::Retryable, "timeout", message);
            return Err(Outcome::Retry { failure, after: None });
        };
        if let Some(token) = self.usable(refused) {
            return Ok(token);
        }
        let number = self.fetched.load(Ordering::Acquire);
        if number > seen
            && let Some(failed) = last_failure.as_ref()
        {
            return Err(failed.clone());
        }
        let fetched = self.fetch(outbound, number + 1, deadline, now).await;
        *last_failure = fetched.as_ref().err().cloned();
        if let Ok(token) = &fetched {
            *self.current.write().expect("nobody panics while holding it") = Some(token.clone());
        }
        self.fetched.store(number + 1, Ordering::Release);
        fetched
    }

    fn usable(&self, refused: Option<&Token>) -> Option<Token> {
        let current = self.current.read().expect("nobody panics while holding it");
        current.as_ref().filter(|token| refused.is_none_or(|refused| refused.number != token.number)).cloned()
    }

    async fn fetch(&self, outbound: &Outbound, number: u64, deadline: Instant, now: Time) -> Result<Token, Outcome> {
        let Source::ClientCredentials { url, client_id, client_secret } = &self.source else {
            let message = "The configured token is refused; replace it.";
            return Err(Outcome::Reject { failure: Failure::new(FailureClass::Auth, "INVALID_SESSION_ID", message) });
        };
        let host = url.host_str().unwrap_or_default();
        let answer = outbound.send(request(url, client_id, client_secret), deadline).await.map_err(|fault| {
            let boundary = fault.boundary;
            let failure = fault.into_failure();
            let failure = Failure { message: format!("No token: {}", failure.message), ..failure };
            match boundary {
                SendProgress::Refused => Outcome::Reject { failure },
                // Whether or not the request for a token arrived: the effect was not sent.
                SendProgress::NotSent | SendProgress::Sent => Outcome::Retry { failure, after: None },
            }
        })?;
        let text = response::token(&answer, host, now)?;
        let authorization = bearer(&text).ok_or_else(|| {
            let message = "No token: Salesforce answered one that cannot be sent.";
            Outcome::Retry { failure: Failure::new(FailureClass::Conflict, "invalid-token", message), after: None }
        })?;
        Ok(Token { authorization, number })
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
    Request { method: Method::POST, url: url.clone(), headers, body: body.into(), reach: AddressScope::Anywhere }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_request_is_a_form_and_shows_no_secret_around_it() {
        let auth = SalesforceAuth::ClientCredentials { client_id: "3MVG9.x".into(), client_secret: "s&c=r e".into() };
        let tokens = Tokens::new("https://acme.my.salesforce.com", &auth).unwrap();
        let Source::ClientCredentials { url, client_id, client_secret } = &tokens.source else { panic!("{tokens:?}") };
        let request = request(url, client_id, client_secret);
        assert_eq!(request.url.as_str(), "https://acme.my.salesforce.com/services/oauth2/token");
        assert_eq!(request.body, "grant_type=client_credentials&client_id=3MVG9.x&client_secret=s%26c%3Dr%20e");
        assert!(!format!("{tokens:?}").contains("s&c=r e"));
    }
}
