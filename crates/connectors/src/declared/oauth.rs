//! Token source of a declared destination: what its connector says about OAuth, with the values of the destination.

use sluice_domain::connector::{AssertionClaims, Grant, OAuth};
use sluice_domain::template::{Scope, Template};
use sluice_domain::verify::SecretValue;

use super::target::text;
use crate::token::{Assertion, Claims, GrantRequest, Tokens, read_grant};

/// Field that the endpoint may replace.
const REFRESH_TOKEN: &str = "refresh_token";

/// The error names the key of the connector that has no usable value.
pub(super) fn tokens(oauth: &OAuth, scope: &Scope) -> Result<Tokens, String> {
    let url = text("auth.oauth.token_url", &oauth.token_url, scope)?;
    let mut form = vec![("grant_type", oauth.grant.as_str().to_owned())];
    let mut refresh_token = None;
    for (name, template) in &oauth.form {
        let value = text(name, template, scope)?;
        match oauth.grant {
            Grant::RefreshToken if name == REFRESH_TOKEN => refresh_token = Some(SecretValue::from(value)),
            _ => form.push((name, value)),
        }
    }
    let fields: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let assertion = oauth.assertion.as_ref().map(|claims| assertion(claims, scope)).transpose()?;
    let grant_request = GrantRequest::form(&fields).with_refresh_token(refresh_token).with_assertion(assertion);
    let tokens = Tokens::endpoint(&url, grant_request, read_grant)
        .map_err(|problem| problem.replacen("auth:", "auth.oauth.token_url:", 1))?;
    Ok(tokens.with_scheme(&oauth.scheme))
}

/// Claims and key of an assertion; the error names the key of the connector that has no usable value.
fn assertion(claims: &AssertionClaims, scope: &Scope) -> Result<Assertion, String> {
    let part = |name: &str, template: &Template| text(&format!("auth.oauth.assertion.{name}"), template, scope);
    let optional = |name: &str, template: &Option<Template>| template.as_ref().map(|own| part(name, own)).transpose();
    let own = Claims {
        issuer: part("issuer", &claims.issuer)?,
        subject: optional("subject", &claims.subject)?,
        audience: part("audience", &claims.audience)?,
        scope: optional("scope", &claims.scope)?,
    };
    // The key of a service account is a JSON text, in which a line break is two characters.
    let key = part("private_key", &claims.private_key)?.replace("\\n", "\n");
    Assertion::with_claims(own, &key.into())
}
