//! OAuth token of one destination: fetched on first use, renewed before it expires and once when it is refused.

mod assertion;
mod grant;

use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::Method;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use sluice_domain::outcome::{Failure, FailureClass, Outcome};
use sluice_domain::template::url::{UNRESERVED, percent_encode};
use sluice_domain::time::Time;
use sluice_domain::verify::SecretValue;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::outbound::{AddressScope, HttpResponse, Outbound, Request, SendProgress, sensitive};

pub(crate) use assertion::{Assertion, Claims};
pub(crate) use grant::read_grant;

/// A token is renewed this long before it expires, so that no call is sent with one that expires on its way.
const RENEW_AHEAD: Duration = Duration::from_secs(60);

/// Access token as a header value.
#[derive(Clone, Debug)]
struct Token {
    authorization: HeaderValue,
    /// Generation; only the first caller whose token of this generation is refused fetches a new one.
    generation: u64,
    /// From then on it is not used any more.
    renew_at: Option<Instant>,
}

/// What a token endpoint granted.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) access_token: String,
    /// Replaces the refresh token, if the endpoint rotates it.
    pub(crate) refresh_token: Option<String>,
    pub(crate) expires_in: Option<Duration>,
}

/// Reads the response of a token endpoint; the error is the outcome of the effect, which was not sent. The text is the host,
/// for messages.
pub(crate) type ReadGrant = fn(&HttpResponse, &str, Time) -> Result<Grant, Outcome>;

/// Limits of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) outbound: &'a Outbound,
    pub(crate) deadline: Instant,
    pub(crate) now: Time,
}

/// Token source and the current token.
#[derive(Debug)]
pub(crate) struct Tokens {
    source: Source,
    /// Word before the token in the header `Authorization`.
    scheme: String,
    read: ReadGrant,
    current: RwLock<Option<Token>>,
    /// Held by the caller that fetches. Stores the failure of the last fetch: callers that waited for the lock
    /// share it, as they share a fetched token.
    fetching: Mutex<Option<Outcome>>,
    /// Number of completed fetches, successful or not.
    fetch_count: AtomicU64,
}

#[derive(Debug)]
enum Source {
    Configured,
    Endpoint { url: Url, grant_request: Box<GrantRequest> },
}

/// What is sent to a token endpoint: a form that holds the credentials, unless they are in the header `Authorization`.
#[derive(Debug)]
pub(crate) struct GrantRequest {
    /// The fields that do not change.
    form: SecretValue,
    authorization: Option<HeaderValue>,
    /// The configured one, or the one that replaced it.
    refresh_token: Option<RwLock<SecretValue>>,
    /// Signed anew for each request.
    assertion: Option<Assertion>,
}

impl Tokens {
    /// A token that is never renewed. The error names the invalid key.
    pub(crate) fn configured(token: &SecretValue, read: ReadGrant) -> Result<Tokens, String> {
        let authorization = bearer(token.expose())
            .ok_or("auth: the token has a character that is not allowed in a header, such as a line break")?;
        let token = Token { authorization, generation: 0, renew_at: None };
        Ok(Tokens { current: RwLock::new(Some(token)), ..Tokens::empty(Source::Configured, read) })
    }

    /// Tokens of an endpoint. The error names the invalid key.
    pub(crate) fn endpoint(url: &str, grant_request: GrantRequest, read: ReadGrant) -> Result<Tokens, String> {
        let url = Url::parse(url).map_err(|error| format!("auth: {url} is not a URL: {error}"))?;
        Ok(Tokens::empty(Source::Endpoint { url, grant_request: Box::new(grant_request) }, read))
    }

    fn empty(source: Source, read: ReadGrant) -> Tokens {
        let (current, fetching) = (RwLock::new(None), Mutex::new(None));
        Tokens { source, scheme: "Bearer".into(), read, current, fetching, fetch_count: AtomicU64::new(0) }
    }

    /// Fetched tokens are sent behind this word.
    pub(crate) fn with_scheme(self, scheme: &str) -> Tokens {
        Tokens { scheme: scheme.to_owned(), ..self }
    }

    /// Header of a preview.
    pub(crate) fn masked(&self, mask: &str) -> Option<HeaderValue> {
        HeaderValue::from_str(&format!("{} {mask}", self.scheme)).ok()
    }

    /// Current access and refresh token in plain text, for redaction.
    pub(crate) fn texts(&self) -> Vec<String> {
        let current = self.current.read().expect("no holder of this lock panics");
        let access = current.as_ref().and_then(|token| token.authorization.to_str().ok()?.split_once(' '));
        let mut texts: Vec<String> = access.map(|(_, text)| text.to_owned()).into_iter().collect();
        if let Source::Endpoint { grant_request, .. } = &self.source {
            texts.extend(grant_request.refresh_token().map(|token| token.expose().to_owned()));
        }
        texts
    }

    /// Sends with the current token and, if it is refused, once more with a new one. Only once: renewing on every
    /// refusal would loop if the new token is refused too.
    pub(crate) async fn exchange(
        &self,
        exchange: Exchange<'_>,
        build: impl Fn(HeaderValue) -> Result<Request, Failure>,
        is_refusal: impl Fn(&HttpResponse) -> bool,
    ) -> Result<HttpResponse, Outcome> {
        let mut refused = None;
        loop {
            let token = self.get(exchange, refused.as_ref()).await?;
            let request = build(token.authorization.clone()).map_err(|failure| Outcome::Reject { failure })?;
            let sent = exchange.outbound.send(request, exchange.deadline).await;
            let response = sent.map_err(|error| error.into_outcome())?;
            let renewable = matches!(self.source, Source::Endpoint { .. });
            if refused.is_none() && renewable && is_refusal(&response) {
                refused = Some(token);
                continue;
            }
            return Ok(response);
        }
    }

    /// A token other than `refused`. Concurrent callers share one fetch and its result. The error is the outcome
    /// of the effect, which was not sent.
    async fn get(&self, exchange: Exchange<'_>, refused: Option<&Token>) -> Result<Token, Outcome> {
        if let Some(token) = self.usable(refused) {
            return Ok(token);
        }
        let fetches_before = self.fetch_count.load(Ordering::Acquire);
        let Ok(mut last_failure) = timeout_at(exchange.deadline, self.fetching.lock()).await else {
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
        let fetched = self.fetch(exchange, fetches + 1).await;
        *last_failure = fetched.as_ref().err().cloned();
        if let Ok(token) = &fetched {
            *self.current.write().expect("no holder of this lock panics") = Some(token.clone());
        }
        self.fetch_count.store(fetches + 1, Ordering::Release);
        fetched
    }

    fn usable(&self, refused: Option<&Token>) -> Option<Token> {
        let current = self.current.read().expect("no holder of this lock panics");
        let token = current.as_ref().filter(|token| token.renew_at.is_none_or(|at| Instant::now() < at))?;
        refused.is_none_or(|refused| refused.generation != token.generation).then(|| token.clone())
    }

    async fn fetch(&self, exchange: Exchange<'_>, generation: u64) -> Result<Token, Outcome> {
        let Source::Endpoint { url, grant_request } = &self.source else {
            let message = "The destination refuses the configured token. Replace it.";
            return Err(Outcome::Reject { failure: Failure::new(FailureClass::Auth, "invalid-token", message) });
        };
        let host = url.host_str().unwrap_or_default();
        let request = grant_request.request(url, exchange.now).map_err(|failure| Outcome::Reject { failure })?;
        let asked_at = Instant::now();
        let response = exchange.outbound.send(request, exchange.deadline).await.map_err(|error| {
            let progress = error.progress;
            let failure = error.into_failure();
            let failure = Failure { message: format!("No token: {}", failure.message), ..failure };
            match progress {
                SendProgress::Refused => Outcome::Reject { failure },
                // Even if the token request arrived, the effect was not sent.
                SendProgress::NotSent | SendProgress::Sent => Outcome::Retry { failure, after: None },
            }
        })?;
        let granted = (self.read)(&response, host, exchange.now)?;
        let authorization = sensitive(&format!("{} {}", self.scheme, granted.access_token)).ok_or_else(|| {
            let message = format!("No token: {host} returned a token that is not valid in a header.");
            Outcome::Retry { failure: Failure::new(FailureClass::Conflict, "invalid-token", message), after: None }
        })?;
        grant_request.rotate(granted.refresh_token);
        Ok(Token { authorization, generation, renew_at: granted.expires_in.and_then(|life| renew_at(asked_at, life)) })
    }
}

/// `None` for a life beyond what the clock can count: some endpoints grant the largest number for a token that never expires.
fn renew_at(asked_at: Instant, life: Duration) -> Option<Instant> {
    asked_at.checked_add(life.saturating_sub(RENEW_AHEAD.min(life / 2)))
}

impl GrantRequest {
    /// The names and values of a form, with the grant type.
    pub(crate) fn form(fields: &[(&str, &str)]) -> GrantRequest {
        GrantRequest { form: form(fields).into(), authorization: None, refresh_token: None, assertion: None }
    }

    pub(crate) fn client_credentials(client_id: &str, client_secret: &SecretValue) -> GrantRequest {
        GrantRequest::form(&[
            ("grant_type", "client_credentials"),
            ("client_id", client_id),
            ("client_secret", client_secret.expose()),
        ])
    }

    pub(crate) fn jwt_bearer(assertion: Assertion) -> GrantRequest {
        let grant_request = GrantRequest::form(&[("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")]);
        grant_request.with_assertion(Some(assertion))
    }

    /// The endpoint may replace the refresh token.
    pub(crate) fn with_refresh_token(self, refresh_token: Option<SecretValue>) -> GrantRequest {
        GrantRequest { refresh_token: refresh_token.map(RwLock::new), ..self }
    }

    pub(crate) fn with_assertion(self, assertion: Option<Assertion>) -> GrantRequest {
        GrantRequest { assertion, ..self }
    }

    pub(crate) fn with_authorization(self, authorization: Option<HeaderValue>) -> GrantRequest {
        GrantRequest { authorization, ..self }
    }

    fn request(&self, url: &Url, now: Time) -> Result<Request, Failure> {
        let mut body = self.form.expose().to_owned();
        if let Some(refresh_token) = self.refresh_token() {
            body = body + "&" + &form(&[("refresh_token", refresh_token.expose())]);
        }
        if let Some(assertion) = &self.assertion {
            body = body + "&" + &form(&[("assertion", &assertion.sign(now)?)]);
        }
        let mut headers = HeaderMap::with_capacity(3);
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let (method, url) = (Method::POST, url.clone());
        Ok(Request { method, url, headers, body: body.into(), scope: AddressScope::Anywhere })
    }

    fn refresh_token(&self) -> Option<SecretValue> {
        Some(self.refresh_token.as_ref()?.read().expect("no holder of this lock panics").clone())
    }

    fn rotate(&self, granted: Option<String>) {
        if let (Some(refresh_token), Some(granted)) = (&self.refresh_token, granted) {
            *refresh_token.write().expect("no holder of this lock panics") = SecretValue::new(granted);
        }
    }
}

/// `Authorization` header value; `None` if the token is not valid in a header.
pub(crate) fn bearer(token: &str) -> Option<HeaderValue> {
    sensitive(&format!("Bearer {token}"))
}

/// Fields as a form.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let mut body = String::new();
    for (name, value) in fields {
        if !body.is_empty() {
            body.push('&');
        }
        percent_encode(name, UNRESERVED, &mut body);
        body.push('=');
        percent_encode(value, UNRESERVED, &mut body);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(_: &HttpResponse, _: &str, _: Time) -> Result<Grant, Outcome> {
        Err(Outcome::Noop { reason: String::new() })
    }

    #[test]
    fn token_requests_are_forms_and_debug_output_omits_the_secrets() {
        let credentials = || GrantRequest::client_credentials("3MVG9.x", &SecretValue::new("s&c=r e"));
        let url = Url::parse("https://acme.my.salesforce.com/services/oauth2/token").unwrap();
        let request = credentials().request(&url, Time(0)).unwrap();
        assert_eq!((&request.method, &request.url), (&Method::POST, &url));
        assert_eq!(request.body, "grant_type=client_credentials&client_id=3MVG9.x&client_secret=s%26c%3Dr%20e");
        let refresh = credentials().with_refresh_token(Some(SecretValue::new("first-refresh")));
        let body =
            |request: &GrantRequest| String::from_utf8(request.request(&url, Time(0)).unwrap().body.into()).unwrap();
        assert!(body(&refresh).ends_with("&client_secret=s%26c%3Dr%20e&refresh_token=first-refresh"));
        refresh.rotate(Some("second-refresh".into()));
        assert!(body(&refresh).ends_with("&refresh_token=second-refresh"), "{}", body(&refresh));
        let tokens = Tokens::endpoint(url.as_str(), refresh, refuse).unwrap();
        assert_eq!(tokens.texts(), ["second-refresh"]);
        let shown = format!("{tokens:?}");
        assert!(!shown.contains("s&c=r e") && !shown.contains("second-refresh"), "{shown}");
    }

    #[test]
    fn token_that_lives_longer_than_any_clock_is_not_renewed() {
        let now = Instant::now();
        assert_eq!(renew_at(now, Duration::from_secs(1800)), Some(now + Duration::from_secs(1740)));
        assert_eq!(renew_at(now, Duration::from_secs(20)), Some(now + Duration::from_secs(10)));
        for seconds in [(1 << 63) + 100, u64::MAX] {
            assert_eq!(renew_at(now, Duration::from_secs(seconds)), None);
        }
    }

    #[test]
    fn configured_token_with_a_line_break_is_rejected() {
        assert!(Tokens::configured(&"a\nb".into(), refuse).unwrap_err().starts_with("auth:"));
    }
}
