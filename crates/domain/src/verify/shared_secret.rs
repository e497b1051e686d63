//! Shared secrets sent in plain text: bearer tokens, tokens in a header or the query, HTTP Basic.

use std::borrow::Cow;

use data_encoding::BASE64_NOPAD;
use jiff::Timestamp;

use super::Verified;
use super::digest::constant_time_eq;
use super::error::VerifyError;
use super::hmac::header_name;
use super::problem::SettingsProblem;
use super::request::Request;
use super::secret::{Keyring, Secret, SecretValue};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenLocation {
    /// The whole value of this header.
    Header(String),
    /// The decoded value of this query parameter. Keep such URLs out of logs.
    Query(String),
}

/// Compares the sent credential with the configured ones.
#[derive(Clone, Debug)]
pub(super) struct SharedCheck {
    pub(super) location: SharedLocation,
    /// Expected values, after decoding.
    pub(super) keys: Keyring<SecretValue>,
}

#[derive(Clone, Debug)]
pub(super) enum SharedLocation {
    Bearer,
    Basic,
    Header(Box<str>),
    Query(Box<str>),
}

impl SharedCheck {
    pub(super) fn bearer(secrets: &[Secret]) -> Result<SharedCheck, SettingsProblem> {
        SharedCheck::new(SharedLocation::Bearer, secrets)
    }

    pub(super) fn token(location: &TokenLocation, secrets: &[Secret]) -> Result<SharedCheck, SettingsProblem> {
        let location = match location {
            TokenLocation::Header(name) => SharedLocation::Header(header_name(name)?),
            TokenLocation::Query(name) => SharedLocation::Query(name.as_str().into()),
        };
        SharedCheck::new(location, secrets)
    }

    /// With a user name, each secret is a password; without one, each is `user:password`.
    pub(super) fn basic(user_name: Option<&str>, secrets: &[Secret]) -> Result<SharedCheck, SettingsProblem> {
        if user_name.is_some_and(|name| name.contains(':')) {
            return Err(SettingsProblem::UserNameColon);
        }
        let keys = Keyring::build(secrets, |secret| match user_name {
            Some(name) => Ok(SecretValue::from(format!("{name}:{}", secret.value.expose()))),
            None if secret.value.expose().contains(':') => Ok(secret.value.clone()),
            None => Err(SettingsProblem::NoUserName(secret.name.clone())),
        })?;
        Ok(SharedCheck { location: SharedLocation::Basic, keys })
    }

    fn new(location: SharedLocation, secrets: &[Secret]) -> Result<SharedCheck, SettingsProblem> {
        let keys = Keyring::build(secrets, |secret| Ok::<_, SettingsProblem>(secret.value.clone()))?;
        Ok(SharedCheck { location, keys })
    }

    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let location = self.location.name();
        let sent = self.sent(request)?;
        let mismatch = VerifyError::CredentialsMismatch { location };
        let secret = self.keys.accept(now, mismatch, |key| constant_time_eq(&sent, key.expose().as_bytes()))?;
        Ok(Verified::signed_by(secret, None))
    }

    /// The credential in the request.
    fn sent<'a>(&self, request: &Request<'a>) -> Result<Cow<'a, [u8]>, VerifyError> {
        let missing = || VerifyError::CredentialsMissing { location: self.location.name() };
        let malformed = || VerifyError::CredentialsMalformed { location: self.location.name() };
        match &self.location {
            SharedLocation::Header(name) => request.header(name).map(Cow::Borrowed).ok_or_else(missing),
            SharedLocation::Query(name) => {
                request.parameter(name).filter(|value| !value.is_empty()).ok_or_else(missing)
            }
            SharedLocation::Bearer => {
                let value = request.header("authorization").ok_or_else(missing)?;
                after_scheme(value, "bearer").map(Cow::Borrowed).ok_or_else(malformed)
            }
            SharedLocation::Basic => {
                let value = request.header("authorization").ok_or_else(missing)?;
                let encoded = after_scheme(value, "basic").ok_or_else(malformed)?;
                let end = encoded.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
                BASE64_NOPAD.decode(&encoded[..end]).map(Cow::Owned).map_err(|_| malformed())
            }
        }
    }
}

impl SharedLocation {
    pub(super) fn header(&self) -> Option<&str> {
        match self {
            SharedLocation::Bearer | SharedLocation::Basic => Some("authorization"),
            SharedLocation::Header(name) => Some(name),
            SharedLocation::Query(_) => None,
        }
    }

    fn name(&self) -> String {
        match self {
            SharedLocation::Bearer | SharedLocation::Basic => "the header authorization".to_owned(),
            SharedLocation::Header(name) => format!("the header {name}"),
            SharedLocation::Query(name) => format!("the query parameter {name}"),
        }
    }
}

/// Value after the name of an authentication scheme, which is case-insensitive.
fn after_scheme<'a>(value: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let (own, rest) = value.split_at_checked(scheme.len())?;
    let credentials = rest.strip_prefix(b" ")?.trim_ascii();
    (own.eq_ignore_ascii_case(scheme.as_bytes()) && !credentials.is_empty()).then_some(credentials)
}
