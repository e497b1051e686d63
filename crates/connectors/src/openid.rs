//! Client of an OpenID provider: its description, its keys and its token endpoint. What the answers mean is decided in
//! [`oidc`](sluice_domain::access::oidc).

use std::time::Duration;

use bytes::Bytes;
use data_encoding::BASE64;
use hyper::Method;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::Value;
use sluice_domain::access::oidc::{ClientAuthentication, Discovery, KeySet, OidcSettings};
use url::Url;

use crate::deadline;
use crate::outbound::{
    AddressScope, HttpResponse, Outbound, OutboundSettings, Request, SendError, SendProgress, sensitive,
};
use crate::token::form;

/// Time limit of one request to a provider.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest error code of a provider that is shown, in characters.
const CODE_CHARACTERS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenIdError {
    /// The provider cannot be reached, is too slow, or answers with what nobody can use.
    #[error("{0}")]
    Away(String),
    /// The provider does not redeem the code.
    #[error("the provider does not redeem the code: {0}")]
    Refused(String),
}

/// A code, and what redeems it.
#[derive(Clone, Copy)]
pub struct CodeGrant<'a> {
    pub code: &'a str,
    /// Of PKCE.
    pub verifier: &'a str,
}

/// Omits both: they are secrets.
impl std::fmt::Debug for CodeGrant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CodeGrant(***)")
    }
}

/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct OpenIdClient {
    outbound: Outbound,
    timeout: Duration,
}

impl OpenIdClient {
    /// Fails if TLS cannot be configured on this machine.
    pub fn new() -> Result<OpenIdClient, OpenIdError> {
        let outbound = Outbound::new(&OutboundSettings::default()).map_err(OpenIdError::Away)?;
        Ok(OpenIdClient { outbound, timeout: TIMEOUT })
    }

    /// The same with another time limit of each request.
    pub fn with_timeout(self, timeout: Duration) -> OpenIdClient {
        OpenIdClient { timeout, ..self }
    }

    /// Reads what the issuer says about itself.
    pub async fn discovery(&self, issuer: &str) -> Result<Discovery, OpenIdError> {
        let address = Discovery::address(issuer);
        let document = self.get(&address, issuer).await?;
        Discovery::read(&document, issuer).map_err(|problem| unusable(&address, &problem))
    }

    /// Reads the keys that the issuer signs with.
    pub async fn keys(&self, issuer: &str, address: &str) -> Result<KeySet, OpenIdError> {
        let document = self.get(address, issuer).await?;
        let keys = KeySet::read(&document).map_err(|problem| unusable(address, &problem))?;
        if keys.is_empty() {
            return Err(unusable(address, "it has no key that verifies signatures"));
        }
        Ok(keys)
    }

    /// Redeems a code for an ID token.
    pub async fn redeem(
        &self,
        settings: &OidcSettings,
        discovery: &Discovery,
        grant: CodeGrant<'_>,
    ) -> Result<String, OpenIdError> {
        let redirect_uri = settings.redirect_uri();
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", grant.code),
            ("redirect_uri", redirect_uri.as_str()),
            ("code_verifier", grant.verifier),
        ];
        let mut headers = json_headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let secret = settings.client_secret.as_ref().map(|secret| secret.expose());
        match (discovery.authentication(settings), secret) {
            (ClientAuthentication::Basic, Some(secret)) => {
                headers.insert(AUTHORIZATION, basic(&settings.client_id, secret)?);
            }
            (ClientAuthentication::Post, Some(secret)) => {
                fields.extend([("client_id", settings.client_id.as_str()), ("client_secret", secret)]);
            }
            _ => fields.push(("client_id", &settings.client_id)),
        }
        let request = Request {
            method: Method::POST,
            url: parse(&discovery.token_endpoint)?,
            headers,
            body: Bytes::from(form(&fields)),
            scope: scope(&discovery.token_endpoint, &settings.issuer),
        };
        let response = self.send(request).await?;
        id_token(&response, &discovery.token_endpoint)
    }

    async fn get(&self, address: &str, issuer: &str) -> Result<Value, OpenIdError> {
        let url = parse(address)?;
        let (headers, scope) = (json_headers(), scope(address, issuer));
        let request = Request { method: Method::GET, url, headers, body: Bytes::new(), scope };
        let response = self.send(request).await?;
        match response.status {
            200 if response.truncated => Err(unusable(address, "it is too long")),
            200 => serde_json::from_slice(&response.body).map_err(|_| unusable(address, "it is not JSON")),
            status => Err(unusable(address, &format!("the status is {status}"))),
        }
    }

    async fn send(&self, request: Request) -> Result<HttpResponse, OpenIdError> {
        let host = request.url.host_str().unwrap_or_default().to_owned();
        let sent = self.outbound.send(request, deadline([self.timeout])).await;
        sent.map_err(|SendError { progress, message, .. }| match progress {
            SendProgress::Refused => OpenIdError::Away(format!(
                "{host} was not called: it is not a public address, and not the host and port of the issuer."
            )),
            SendProgress::NotSent | SendProgress::Sent => OpenIdError::Away(message),
        })
    }
}

fn json_headers() -> HeaderMap {
    HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))])
}

fn parse(address: &str) -> Result<Url, OpenIdError> {
    Url::parse(address).map_err(|error| unusable(address, &format!("the address is not a URL: {error}")))
}

fn unusable(address: &str, problem: &str) -> OpenIdError {
    OpenIdError::Away(format!("The answer of {address} cannot be used: {problem}."))
}

/// The operator chose the host of the issuer. Other hosts that the provider names must not be inside the operator's network.
fn scope(address: &str, issuer: &str) -> AddressScope {
    let host = |text: &str| {
        Url::parse(text).ok().and_then(|url| Some((url.host_str()?.to_owned(), url.port_or_known_default())))
    };
    match (host(address), host(issuer)) {
        (Some(named), Some(chosen)) if named == chosen => AddressScope::Anywhere,
        _ => AddressScope::Public,
    }
}

/// Id and secret are encoded as in a form before they are joined (RFC 6749, 2.3.1).
fn basic(id: &str, secret: &str) -> Result<HeaderValue, OpenIdError> {
    let encoded = |text: &str| form(&[("", text)]).split_off(1);
    let pair = format!("{}:{}", encoded(id), encoded(secret));
    let value = sensitive(&format!("Basic {}", BASE64.encode(pair.as_bytes())));
    value.ok_or_else(|| OpenIdError::Away("The client id or secret cannot be sent.".to_owned()))
}

fn id_token(response: &HttpResponse, address: &str) -> Result<String, OpenIdError> {
    if response.truncated {
        return Err(unusable(address, "it is too long"));
    }
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    match response.status {
        200 => {
            let token = body.get("id_token").and_then(Value::as_str);
            token
                .map(str::to_owned)
                .ok_or_else(|| unusable(address, "it has no ID token; is `openid` among the scopes?"))
        }
        400..500 => {
            let code = body.get("error").and_then(Value::as_str).unwrap_or("no reason given");
            let is_plain = |c: &char| c.is_ascii_graphic() || *c == ' ';
            let code: String = code.chars().filter(is_plain).take(CODE_CHARACTERS_MAX).collect();
            Err(OpenIdError::Refused(format!("{code} (status {})", response.status)))
        }
        status => Err(unusable(address, &format!("the status is {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_of_the_issuer_may_be_in_the_own_network() {
        let issuer = "https://login.internal/realms/a";
        assert_eq!(scope("https://login.internal/token", issuer), AddressScope::Anywhere);
        for other in
            ["https://169.254.169.254/token", "https://login.internal:8443/token", "https://other.internal/", ""]
        {
            assert_eq!(scope(other, issuer), AddressScope::Public, "{other}");
        }
    }

    #[test]
    fn id_and_secret_are_encoded_before_they_are_joined() {
        let header = basic("a:b", "c d%").unwrap();
        assert!(header.is_sensitive());
        assert_eq!(header, format!("Basic {}", BASE64.encode(b"a%3Ab:c%20d%25")));
    }
}
