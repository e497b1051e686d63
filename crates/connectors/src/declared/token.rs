//! OAuth token of a declared destination: fetched on first use, cached until refused.

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::Method;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::Value;
use sluice_domain::connector::OAuth;
use sluice_domain::outcome::{EffectClass, Failure, FailureClass, Outcome};
use sluice_domain::template::Scope;
use sluice_domain::template::url::{UNRESERVED, percent_encode};
use sluice_domain::time::Time;
use sluice_domain::verify::SecretValue;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::target::text;
use crate::http::response::{ResponseContext, outcome as by_status};
use crate::outbound::{AddressScope, HttpResponse, Outbound, Request, SendProgress, sensitive};

/// Access token as a header value.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(super) authorization: HeaderValue,
    /// Only the first caller whose token of this generation is refused fetches a new one.
    generation: u64,
}

/// Token source and the current token.
#[derive(Debug)]
pub(crate) struct Tokens {
    /// `None`: the destination has other credentials.
    source: Option<TokenSource>,
    current: RwLock<Option<Token>>,
    /// Held by the caller that fetches. Stores the failure of the last fetch: callers that waited for the lock share it.
    fetching: Mutex<Option<Outcome>>,
    /// Number of completed fetches, successful or not.
    fetch_count: AtomicU64,
}

#[derive(Debug)]
struct TokenSource {
    url: Url,
    /// Form of the token request; holds the credentials.
    form: SecretValue,
    /// Word before the token.
    scheme: String,
}

impl Tokens {
    pub(super) fn none() -> Tokens {
        Tokens::new(None)
    }

    /// The error names the key of the connector that has no usable value.
    pub(super) fn fetched(oauth: &OAuth, scope: &Scope) -> Result<Tokens, String> {
        let url = text("auth.oauth.token_url", &oauth.token_url, scope)?;
        let url = Url::parse(&url).map_err(|error| format!("auth.oauth.token_url: is not a URL: {error}"))?;
        let mut form = format!("grant_type={}", oauth.grant.as_str());
        for (name, template) in &oauth.form {
            form.push('&');
            percent_encode(name, UNRESERVED, &mut form);
            form.push('=');
            percent_encode(&text(name, template, scope)?, UNRESERVED, &mut form);
        }
        Ok(Tokens::new(Some(TokenSource { url, form: form.into(), scheme: oauth.scheme.clone() })))
    }

    fn new(source: Option<TokenSource>) -> Tokens {
        Tokens { source, current: RwLock::new(None), fetching: Mutex::new(None), fetch_count: AtomicU64::new(0) }
    }

    pub(super) fn renewable(&self) -> bool {
        self.source.is_some()
    }

    /// Header of a preview; `None` if requests carry no token.
    pub(super) fn masked(&self, mask: &str) -> Option<HeaderValue> {
        let source = self.source.as_ref()?;
        HeaderValue::from_str(&format!("{} {mask}", source.scheme)).ok()
    }

    /// Current token in plain text, for redaction.
    pub(super) fn text(&self) -> Option<String> {
        let token = self.usable(None)?;
        token.authorization.to_str().ok()?.split_once(' ').map(|(_, text)| text.to_owned())
    }

    /// A token other than `refused`; `None` if requests carry no token. Concurrent callers share one fetch and its result.
    /// The error is the outcome of the effect, which was not sent.
    pub(super) async fn get(
        &self,
        outbound: &Outbound,
        refused: Option<&Token>,
        deadline: Instant,
        now: Time,
    ) -> Result<Option<Token>, Outcome> {
        let Some(source) = &self.source else { return Ok(None) };
        if let Some(token) = self.usable(refused) {
            return Ok(Some(token));
        }
        let fetches_before = self.fetch_count.load(Ordering::Acquire);
        let Ok(mut last_failure) = timeout_at(deadline, self.fetching.lock()).await else {
            let message = "No access token before the timeout. Nothing was sent.";
            let failure = Failure::new(FailureClass::Retryable, "timeout", message);
            return Err(Outcome::Retry { failure, after: None });
        };
        if let Some(token) = self.usable(refused) {
            return Ok(Some(token));
        }
        let fetches = self.fetch_count.load(Ordering::Acquire);
        if fetches > fetches_before
            && let Some(failed) = last_failure.as_ref()
        {
            return Err(failed.clone());
        }
        let fetched = source.fetch(outbound, fetches + 1, deadline, now).await;
        *last_failure = fetched.as_ref().err().cloned();
        if let Ok(token) = &fetched {
            *self.current.write().expect("no holder of this lock panics") = Some(token.clone());
        }
        self.fetch_count.store(fetches + 1, Ordering::Release);
        fetched.map(Some)
    }

    fn usable(&self, refused: Option<&Token>) -> Option<Token> {
        let current = self.current.read().expect("no holder of this lock panics");
        current.as_ref().filter(|token| refused.is_none_or(|refused| refused.generation != token.generation)).cloned()
    }
}

impl TokenSource {
    async fn fetch(
        &self,
        outbound: &Outbound,
        generation: u64,
        deadline: Instant,
        now: Time,
    ) -> Result<Token, Outcome> {
        let host = self.url.host_str().unwrap_or_default();
        let response = outbound.send(self.request(), deadline).await.map_err(|error| {
            let progress = error.progress;
            let failure = error.into_failure();
            let failure = Failure { message: format!("No token: {}", failure.message), ..failure };
            match progress {
                SendProgress::Refused => Outcome::Reject { failure },
                // Even if the token request arrived, the effect was not sent.
                SendProgress::NotSent | SendProgress::Sent => Outcome::Retry { failure, after: None },
            }
        })?;
        let text = access_token(&response, host, now)?;
        let authorization = sensitive(&format!("{} {text}", self.scheme)).ok_or_else(|| {
            let message = format!("No token: {host} returned one that is not valid in a header.");
            Outcome::Retry { failure: Failure::new(FailureClass::Conflict, "invalid-token", message), after: None }
        })?;
        Ok(Token { authorization, generation })
    }

    fn request(&self) -> Request {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let body = self.form.expose().to_owned().into();
        Request { method: Method::POST, url: self.url.clone(), headers, body, scope: AddressScope::Anywhere }
    }
}

/// The token of an answer. Some providers answer 200 with an error, so the status alone says nothing.
fn access_token(response: &HttpResponse, host: &str, now: Time) -> Result<String, Outcome> {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    if let (200..300, Some(token)) = (response.status, body["access_token"].as_str()) {
        return Ok(token.to_owned());
    }
    let code = body["error"].as_str().unwrap_or("no-token").to_owned();
    let message = format!("No token: {host} answered {} {code}; check the credentials.", response.status);
    let context = ResponseContext { host, class: EffectClass::Natural, accept_status: &[], now };
    Err(match by_status(response, context) {
        Outcome::Retry { failure, after } => Outcome::Retry { failure: Failure { message, ..failure }, after },
        Outcome::Wait { failure, after } => Outcome::Wait { failure: Failure { message, ..failure }, after },
        _ => Outcome::Reject { failure: Failure::new(FailureClass::Auth, code, message).with_status(response.status) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(status: u16, body: &Value) -> HttpResponse {
        HttpResponse { status, headers: HeaderMap::new(), body: body.to_string().into(), truncated: false }
    }

    #[test]
    fn token_answers_are_judged_by_status_and_content() {
        let read = |status, body| access_token(&answer(status, &body), "a.example", Time(0));
        assert_eq!(read(200, json!({"access_token": "t1"})), Ok("t1".to_owned()));
        for (status, body, outcome, class) in [
            (200, json!({"error": "invalid_code"}), "reject", FailureClass::Auth),
            (400, json!({"error": "invalid_grant"}), "reject", FailureClass::Auth),
            (429, json!({}), "wait", FailureClass::Retryable),
            (503, json!({}), "retry", FailureClass::Retryable),
        ] {
            let failed = read(status, body).unwrap_err();
            assert_eq!((failed.as_str(), failed.failure().unwrap().class), (outcome, class), "{status}");
        }
    }
}
