//! HTTP destination with parsed settings, and resolution of a step's URL against it.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use data_encoding::BASE64;
use hyper::header::{AUTHORIZATION, HeaderMap};
use serde_json::{Map, Value};
use sluice_domain::destination::{ClientCredentialsIn, HttpAuth, HttpDestination, HttpOAuth};
use sluice_domain::failure_rules::{FailureRule, FailureTable};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::template::url::{UNRESERVED, is_absolute, percent_encode};
use sluice_domain::verify::{SecretValue, Verifier};
use url::Url;

use super::request::{header_name, pairs};
use super::response::{ANY_HOST_RULES, shipped_rules};
use crate::outbound::{AddressScope, Outbound, OutboundSettings, sensitive};
use crate::parameter::problem;
use crate::token::{GrantRequest, Tokens, read_grant};
use crate::url_path::{has_dot_segment, is_below};

#[derive(Debug)]
pub(crate) struct Target {
    base: Option<Base>,
    /// Headers of every request, including credentials; all are masked in previews.
    pub(super) headers: HeaderMap,
    allow_private_addresses: bool,
    pub(super) signer: Option<Box<Verifier>>,
    /// Signs every request, also those that only read.
    pub(super) authenticator: Option<Box<Verifier>>,
    pub(super) tokens: Option<Box<Tokens>>,
    /// `None`: connections are shared with other destinations.
    pub(crate) outbound: Option<Outbound>,
    /// Redacted from every message about this destination.
    pub(crate) secrets: Vec<SecretValue>,
    /// What error responses mean.
    pub(crate) rules: FailureTable,
    /// Last parsed URL: most steps always use the same one.
    last: Mutex<Option<Located>>,
}

/// No base address and no credentials.
impl Default for Target {
    fn default() -> Target {
        Target {
            base: None,
            headers: HeaderMap::new(),
            allow_private_addresses: false,
            signer: None,
            authenticator: None,
            tokens: None,
            outbound: None,
            secrets: vec![],
            rules: ANY_HOST_RULES.clone(),
            last: Mutex::default(),
        }
    }
}

/// A step's URL text and its parsed form.
struct Located {
    text: String,
    url: Url,
    scope: AddressScope,
}

/// Omits the fields: secrets and personal data may be rendered into them.
impl fmt::Debug for Located {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Located").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Base {
    /// Without a trailing slash.
    text: String,
    url: Url,
}

impl Target {
    /// The same, with rules of the destination before the shipped ones.
    pub(crate) fn with_rules(self, own: &[FailureRule]) -> Target {
        Target { rules: self.rules.behind(own), ..self }
    }

    /// Parses the settings; the error names the invalid key.
    pub(crate) fn new(destination: &HttpDestination) -> Result<Target, String> {
        let base = destination.base_url.as_deref().map(Base::parse).transpose()?;
        let mut headers = HeaderMap::with_capacity(destination.headers.len() + 1);
        let mut secrets = Vec::new();
        for (name, value) in &destination.headers {
            let parsed = header_name(name).map_err(|what| format!("headers: `{name}` {what}"))?;
            let value_parsed = sensitive(value.expose()).ok_or_else(|| {
                format!("headers: the value of `{name}` has a character that is not allowed in a header")
            })?;
            headers.append(parsed, value_parsed);
            secrets.push(value.clone());
        }
        secrets.extend(destination.channel.proxy.iter().filter_map(|proxy| Some(proxy.login.as_ref()?.1.clone())));
        let (mut authenticator, mut tokens) = (None, None);
        let authorization = match &destination.auth {
            HttpAuth::None => None,
            HttpAuth::Hmac(signer) => {
                authenticator = Some(signer.clone());
                None
            }
            HttpAuth::OAuth(oauth) => {
                tokens = Some(Box::new(oauth_tokens(oauth)?));
                secrets.push(oauth.client_secret.clone());
                None
            }
            HttpAuth::Bearer(token) => {
                secrets.push(token.clone());
                Some(format!("Bearer {}", token.expose()))
            }
            HttpAuth::Basic { user, password } => {
                let encoded = BASE64.encode(format!("{user}:{}", password.expose()).as_bytes());
                secrets.push(password.clone());
                secrets.push(SecretValue::new(encoded.as_str()));
                Some(format!("Basic {encoded}"))
            }
        };
        if let Some(authorization) = authorization {
            let value = sensitive(&authorization)
                .ok_or("auth: the secret has a character that is not allowed in a header, such as a line break")?;
            headers.insert(AUTHORIZATION, value);
        }
        Ok(Target {
            base,
            headers,
            allow_private_addresses: destination.allow_private_addresses,
            signer: destination.signer.clone(),
            authenticator,
            tokens,
            outbound: None,
            secrets,
            rules: shipped_rules(destination).clone(),
            last: Mutex::default(),
        })
    }

    /// As [`Target::new`], with connections of its own where the settings want them.
    pub(crate) fn connected(destination: &HttpDestination, settings: &OutboundSettings) -> Result<Target, String> {
        let mut target = Target::new(destination)?;
        if !destination.channel.is_usual() {
            target.outbound = Some(Outbound::through(&destination.channel, settings)?);
        }
        Ok(target)
    }

    /// Resolves a step's URL; returns it with the addresses it may use.
    pub(super) fn locate(&self, url: &str, query: Option<&Map<String, Value>>) -> Result<(Url, AddressScope), Failure> {
        let url = url.trim();
        let mut text = if is_absolute(url) {
            url.to_owned()
        } else if let Some(base) = &self.base {
            format!("{}/{}", base.text, url.trim_start_matches('/'))
        } else {
            return Err(problem("url", "is relative, and the destination has no base_url"));
        };
        if let Some(query) = query {
            let fragment = text.find('#').map(|at| text.split_off(at));
            let mut first = !text.contains('?');
            pairs(query, "query", |name, value| {
                if first {
                    text.push('?');
                } else if !text.ends_with(['?', '&']) {
                    text.push('&');
                }
                first = false;
                percent_encode(name, UNRESERVED, &mut text);
                text.push('=');
                percent_encode(value, UNRESERVED, &mut text);
            })?;
            text.push_str(fragment.as_deref().unwrap_or_default());
        }
        let last = || self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(located) = &*last()
            && located.text == text
        {
            return Ok((located.url.clone(), located.scope));
        }
        let url = Url::parse(&text).map_err(|error| problem("url", format_args!("is not a URL: {error}")))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(problem("url", "has a user or a password; set them in the destination's auth"));
        }
        self.check_target(&text, &url)?;
        let scope = match self.base.is_some() || self.allow_private_addresses {
            true => AddressScope::Anywhere,
            false => AddressScope::Public,
        };
        *last() = Some(Located { text, url: url.clone(), scope });
        Ok((url, scope))
    }
}

impl Target {
    /// Refuses a URL that leaves the destination: another origin, or a path outside of the base path.
    fn check_target(&self, text: &str, url: &Url) -> Result<(), Failure> {
        let refused = |code, message: String| Err(Failure::new(FailureClass::Permanent, code, message));
        if has_dot_segment(path_of(text)) {
            let message =
                "The path of `with.url` has a `.` or `..` segment, which would lead to another path; nothing was sent.";
            return refused("dot-segment", message.to_owned());
        }
        let Some(base) = &self.base else { return Ok(()) };
        if base.url.origin() != url.origin() {
            let host = url.host_str().unwrap_or_default();
            return refused(
                "other-origin",
                format!(
                    "`with.url` leads to {host}, which is not the scheme, host and port of the destination's base_url; nothing was sent. Configure a separate destination for it."
                ),
            );
        }
        if !is_below(base.url.path(), url.path()) {
            return refused(
                "outside-base-path",
                format!(
                    "The path of `with.url` is not below {}, the path of the destination's base_url; nothing was sent.",
                    base.url.path()
                ),
            );
        }
        Ok(())
    }
}

/// Source of the access tokens; the error names the invalid key.
fn oauth_tokens(oauth: &HttpOAuth) -> Result<Tokens, String> {
    let HttpOAuth { client_id, client_secret, .. } = oauth;
    let mut fields = vec![("grant_type", "client_credentials")];
    let authorization = match oauth.credentials_in {
        ClientCredentialsIn::Body => {
            fields.extend([("client_id", client_id.as_str()), ("client_secret", client_secret.expose())]);
            None
        }
        ClientCredentialsIn::Header => {
            // Both are encoded as form values first: RFC 6749, section 2.3.1.
            let encoded = |text: &str| {
                let mut encoded = String::new();
                percent_encode(text, UNRESERVED, &mut encoded);
                encoded
            };
            let pair = format!("{}:{}", encoded(client_id), encoded(client_secret.expose()));
            let value = format!("Basic {}", BASE64.encode(pair.as_bytes()));
            Some(sensitive(&value).ok_or("auth.oauth: the credentials are not valid in a header")?)
        }
    };
    fields.extend(oauth.scope.as_deref().map(|scope| ("scope", scope)));
    fields.extend(oauth.audience.as_deref().map(|audience| ("audience", audience)));
    let grant_request = GrantRequest::form(&fields).with_authorization(authorization);
    Tokens::endpoint(&oauth.token_url, grant_request, read_grant)
}

/// Path of an absolute URL, as written.
fn path_of(text: &str) -> &str {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    let start = rest[..end].find(['/', '\\']).unwrap_or(end);
    &rest[start..end]
}

impl Base {
    fn parse(text: &str) -> Result<Base, String> {
        let url = Url::parse(text).map_err(|error| format!("base_url: is not a URL: {error}"))?;
        let user = !url.username().is_empty() || url.password().is_some();
        if user || !is_absolute(text) || url.query().is_some() || url.fragment().is_some() {
            return Err("base_url: must be http:// or https://, a host and at most a path".to_owned());
        }
        Ok(Base { text: text.trim_end_matches('/').to_owned(), url })
    }
}
