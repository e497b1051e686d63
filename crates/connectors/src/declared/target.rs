//! Declared destination with its values filled in: the HTTP target, the credentials and the scope of its templates.

use hyper::header::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use sluice_domain::connector::{ConnectorAuth, DeclaredDestination, RegisteredConnector};
use sluice_domain::destination::{HttpAuth, HttpDestination};
use sluice_domain::failure_rules::FailureRule;
use sluice_domain::template::url::{UNRESERVED, percent_encode};
use sluice_domain::template::{Scope, Template};
use sluice_domain::verify::SecretValue;

use super::oauth;
use crate::http;
use crate::http::request::header_name;
use crate::text::MASK;
use crate::token::Tokens;

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) connector: &'static RegisteredConnector,
    pub(super) http: http::Target,
    /// `None`: the destination has other credentials.
    pub(super) tokens: Option<Tokens>,
    /// Headers of every request, without credentials.
    pub(super) headers: HeaderMap,
    /// Values of the destination's keys, for request templates. Never part of a result.
    values: SecretValues,
    /// Redacted from every message, also in the form they have in a URL.
    secrets: Vec<SecretValue>,
    /// Rules of the destination, evaluated before those of the connector.
    pub(super) own_rules: Vec<FailureRule>,
}

/// Omits the values in debug output.
struct SecretValues(Value);

impl std::fmt::Debug for SecretValues {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretValues")
    }
}

impl Target {
    pub(crate) fn with_rules(self, own: &[FailureRule]) -> Target {
        Target { own_rules: own.to_vec(), ..self }
    }

    /// Fills in the values; the error names the key of the connector that has no usable value.
    pub(crate) fn new(destination: &DeclaredDestination) -> Result<Target, String> {
        let values: Map<String, Value> =
            destination.values.iter().map(|(name, value)| (name.clone(), value.expose().into())).collect();
        let values = SecretValues(Value::Object(values));
        let scope = destination_scope(&values);
        let connector = destination.connector.definition;
        let base_url = match (&destination.base_url, &connector.base_url) {
            (Some(own), _) => Some(own.clone()),
            (None, Some(template)) => Some(text("base_url", template, &scope)?),
            (None, None) => None,
        };
        let mut plain = HeaderMap::with_capacity(connector.headers.len());
        for (name, template) in &connector.headers {
            let parsed = header_name(name).map_err(|what| format!("headers: `{name}` {what}"))?;
            let value = HeaderValue::from_str(&text(name, template, &scope)?).map_err(|_| {
                format!("headers: the value of `{name}` has a character that is not allowed in a header")
            })?;
            plain.insert(parsed, value);
        }
        let mut headers = vec![];
        let mut auth = HttpAuth::None;
        match &connector.auth {
            ConnectorAuth::None | ConnectorAuth::OAuth(_) => {}
            ConnectorAuth::Bearer(token) => auth = HttpAuth::Bearer(text("auth.bearer", token, &scope)?.into()),
            ConnectorAuth::Basic { user, password } => {
                let user = text("auth.basic.user", user, &scope)?;
                auth = HttpAuth::Basic { user, password: text("auth.basic.password", password, &scope)?.into() };
            }
            ConnectorAuth::Header { name, value } => {
                headers.push((name.clone(), text("auth.header", value, &scope)?.into()));
            }
        }
        let tokens = match &connector.auth {
            ConnectorAuth::OAuth(oauth) => Some(oauth::tokens(oauth, &scope)?),
            _ => None,
        };
        // The operator configures where the requests go, so a private address is allowed.
        let http =
            HttpDestination { base_url, headers, auth, allow_private_addresses: true, ..HttpDestination::default() };
        let http = http::Target::new(&http)?;
        let mut secrets = Vec::new();
        for secret in destination.secrets() {
            let mut encoded = String::new();
            percent_encode(secret.expose(), UNRESERVED, &mut encoded);
            secrets.extend([secret.clone(), SecretValue::from(encoded)]);
        }
        let (connector, own_rules) = (destination.connector, vec![]);
        Ok(Target { connector, http, tokens, headers: plain, values, secrets, own_rules })
    }

    /// Scope of request templates: the destination's values.
    pub(super) fn scope(&self) -> Scope {
        destination_scope(&self.values)
    }

    /// Current tokens in plain text, for redaction.
    pub(super) fn token_texts(&self) -> Vec<String> {
        self.tokens.as_ref().map_or(vec![], Tokens::texts)
    }

    /// Header of a preview; `None` if requests carry no token.
    pub(super) fn masked_token(&self) -> Option<HeaderValue> {
        self.tokens.as_ref()?.masked(MASK)
    }

    /// Secrets of the destination, and its credentials as they are sent.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> + Clone {
        self.secrets.iter().chain(&self.http.secrets).map(SecretValue::expose)
    }
}

fn destination_scope(values: &SecretValues) -> Scope {
    let mut scope = Scope::new();
    scope.set("destination", values.0.clone());
    scope
}

/// Text of a template over `destination`.
pub(super) fn text(key: &str, template: &Template, scope: &Scope) -> Result<String, String> {
    match template.render_plain(scope) {
        Ok(Some(Value::String(text))) if !text.trim().is_empty() => Ok(text),
        Ok(Some(Value::Number(number))) => Ok(number.to_string()),
        Ok(_) => Err(format!("{key}: a key that the connector needs here has no value")),
        Err(problem) => Err(format!("{key}: {problem}")),
    }
}
