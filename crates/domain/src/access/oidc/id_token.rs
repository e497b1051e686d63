//! ID tokens: signature and claims.

use std::collections::HashSet;

use data_encoding::BASE64URL_NOPAD;
use jsonwebtoken::Validation;
use serde_json::{Map, Value};

use super::keys::{KeySet, SigningAlgorithm};
use super::{CLOCK_LEEWAY, SIGN_IN_LIFETIME};
use crate::time::Time;
use crate::verify::SecretValue;

/// Longest subject, in characters, as the specification says.
const SUBJECT_MAX: usize = 255;

/// Why an ID token is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenProblem {
    #[error("it is not a signed token of three parts")]
    Malformed,
    #[error("its algorithm is `{0}`, which is not accepted")]
    Algorithm(String),
    #[error("its header demands an extension (`crit`)")]
    Critical,
    #[error("no key of the provider fits it")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("it is from another issuer (`iss`)")]
    Issuer,
    #[error("it is for another client (`aud`, `azp`)")]
    Audience,
    #[error("it has expired (`exp`), or the clocks differ by more than a minute")]
    Expired,
    #[error("it is not valid yet (`iat`, `nbf`), or the clocks differ by more than a minute")]
    Early,
    #[error("it was issued before this sign-in (`iat`)")]
    Old,
    #[error("it belongs to another sign-in (`nonce`)")]
    Nonce,
    #[error("it has no subject (`sub`)")]
    Subject,
}

/// What an ID token must say.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    pub issuer: &'a str,
    pub client_id: &'a str,
    pub nonce: &'a str,
    /// What the provider says that it signs with.
    pub algorithms: &'a [SigningAlgorithm],
    /// Of the wall clock.
    pub now: Time,
}

/// Verified claims of an ID token.
#[derive(Clone, Debug, PartialEq)]
pub struct IdToken {
    claims: Map<String, Value>,
}

impl IdToken {
    /// Verifies signature and claims. [`TokenProblem::UnknownKey`] may mean that the provider has new keys.
    pub fn verify(token: &str, keys: &KeySet, expected: Expected<'_>) -> Result<IdToken, TokenProblem> {
        let claims = verify_signature(token, keys, expected.algorithms)?;
        check_claims(&claims, expected)?;
        Ok(IdToken { claims })
    }

    /// Claims that were verified elsewhere.
    #[cfg(test)]
    pub(super) fn of(claims: Value) -> IdToken {
        IdToken { claims: claims.as_object().expect("claims are a map").clone() }
    }

    pub fn subject(&self) -> &str {
        self.text("sub").unwrap_or_default()
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.claims.get(name)?.as_str()
    }

    /// A claim by its name, or by a JSON pointer such as `/realm_access/roles`.
    pub(super) fn claim(&self, name: &str) -> Option<&Value> {
        match name.strip_prefix('/') {
            None => self.claims.get(name),
            Some(path) => {
                let mut parts = path.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
                let first = self.claims.get(&parts.next()?)?;
                parts.try_fold(first, |value, part| value.as_object()?.get(&part))
            }
        }
    }

    /// Whether the provider has verified the address. Some providers write it as text.
    pub(super) fn email_is_verified(&self) -> bool {
        self.claims.get("email_verified").is_some_and(|value| *value == Value::Bool(true) || value == "true")
    }
}

/// The claims of a token that a key of the provider has signed. The token's header chooses among what the provider's own description and
/// the type of its key permit, and nothing else: keys and addresses of keys in the header do not count.
fn verify_signature(
    token: &str,
    keys: &KeySet,
    algorithms: &[SigningAlgorithm],
) -> Result<Map<String, Value>, TokenProblem> {
    let named = header_algorithm(token)?;
    let header = jsonwebtoken::decode_header(token).map_err(|_| TokenProblem::Algorithm(named.clone()))?;
    let algorithm = SigningAlgorithm::of_library(header.alg).filter(|algorithm| algorithms.contains(algorithm));
    let algorithm = algorithm.ok_or(TokenProblem::Algorithm(named))?;
    if header.crit.is_some() {
        return Err(TokenProblem::Critical);
    }
    let key = keys.find(header.kid.as_deref(), algorithm).ok_or(TokenProblem::UnknownKey)?;
    let mut validation = Validation::new(algorithm.to_library());
    // The library would read the clock of the machine; the claims are checked below.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.required_spec_claims = HashSet::new();
    let decoded = jsonwebtoken::decode::<Map<String, Value>>(token, &key, &validation);
    decoded.map(|token| token.claims).map_err(|_| TokenProblem::Signature)
}

/// The algorithm as it is written, for messages.
fn header_algorithm(token: &str) -> Result<String, TokenProblem> {
    let parts: Vec<&str> = token.split('.').collect();
    let [header, _, _] = parts[..] else { return Err(TokenProblem::Malformed) };
    let bytes = BASE64URL_NOPAD.decode(header.as_bytes()).map_err(|_| TokenProblem::Malformed)?;
    let header: Value = serde_json::from_slice(&bytes).map_err(|_| TokenProblem::Malformed)?;
    let name = header.get("alg").and_then(Value::as_str).ok_or(TokenProblem::Malformed)?;
    Ok(name.chars().filter(char::is_ascii_alphanumeric).take(16).collect())
}

fn check_claims(claims: &Map<String, Value>, expected: Expected<'_>) -> Result<(), TokenProblem> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let seconds = |name: &str| claims.get(name).and_then(Value::as_f64).map(|seconds| seconds.floor() as i64);
    if text("iss") != Some(expected.issuer) {
        return Err(TokenProblem::Issuer);
    }
    if !is_for(claims, expected.client_id) {
        return Err(TokenProblem::Audience);
    }
    let (now, leeway) = (expected.now.seconds(), CLOCK_LEEWAY.as_secs() as i64);
    let issued = seconds("iat").ok_or(TokenProblem::Early)?;
    if seconds("exp").is_none_or(|expires| now >= expires.saturating_add(leeway)) {
        return Err(TokenProblem::Expired);
    }
    let begins = issued.max(seconds("nbf").unwrap_or(issued));
    if begins.saturating_sub(leeway) > now {
        return Err(TokenProblem::Early);
    }
    if issued.saturating_add(SIGN_IN_LIFETIME.as_secs() as i64 + leeway) < now {
        return Err(TokenProblem::Old);
    }
    let nonce = SecretValue::from(expected.nonce);
    if !text("nonce").is_some_and(|presented| nonce.matches(presented)) {
        return Err(TokenProblem::Nonce);
    }
    let has_subject = text("sub").is_some_and(|subject| !subject.is_empty() && subject.chars().count() <= SUBJECT_MAX);
    if has_subject { Ok(()) } else { Err(TokenProblem::Subject) }
}

/// Whether the token is for this client. A token with several audiences must name it as the authorized party too.
fn is_for(claims: &Map<String, Value>, client_id: &str) -> bool {
    let (is_named, others) = match claims.get("aud") {
        Some(Value::String(one)) => (one == client_id, false),
        Some(Value::Array(several)) => (several.iter().any(|one| one == client_id), several.len() > 1),
        _ => (false, false),
    };
    let party_fits = match claims.get("azp") {
        Some(party) => party == client_id,
        None => !others,
    };
    is_named && party_fits
}
