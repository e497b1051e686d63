//! Shared secrets that are sent as they are: bearer tokens, tokens in a header or the query, HTTP
//! Basic.

use std::borrow::Cow;

use data_encoding::BASE64_NOPAD;
use jiff::Timestamp;

use super::Verified;
use super::digest::same;
use super::error::VerifyError;
use super::hmac::header_name;
use super::problem::SettingsProblem;
use super::request::Request;
use super::secret::{Keyring, Secret, SecretValue};

/// Where a plain token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPlace {
    /// The whole value of this header.
    Header(String),
    /// The value of this query parameter, decoded. Such a URL has to stay out of logs.
    Query(String),
}

/// A scheme that compares what was sent with what is configured.
#[derive(Clone, Debug)]
pub(super) struct SharedCheck {
    pub(super) place: SharedPlace,
    /// What has to arrive, after decoding.
    pub(super) keys: Keyring<SecretValue>,
}

#[derive(Clone, Debug)]
pub(super) enum SharedPlace {
    Bearer,
    Basic,
    Header(Box<str>),
    Query(Box<str>),
}

impl SharedCheck {
    pub(super) fn bearer(secrets: &[Secret]) -> Result<SharedCheck, SettingsProblem> {
        SharedCheck::new(SharedPlace::Bearer, secrets)
    }

    pub(super) fn token(place: &TokenPlace, secrets: &[Secret]) -> Result<SharedCheck, SettingsProblem> {
        let place = match place {
            TokenPlace::Header(name) => SharedPlace::Header(header_name(name)?),
            TokenPlace::Query(name) => SharedPlace::Query(name.as_str().into()),
        };
        SharedCheck::new(place, secrets)
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
        Ok(SharedCheck { place: SharedPlace::Basic, keys })
    }

    fn new(place: SharedPlace, secrets: &[Secret]) -> Result<SharedCheck, SettingsProblem> {
        let keys = Keyring::build(secrets, |secret| Ok::<_, SettingsProblem>(secret.value.clone()))?;
        Ok(SharedCheck { place, keys })
    }

    pub(super) fn verify(&self, request: &Request<'_>, now: Timestamp) -> Result<Verified<'_>, VerifyError> {
        let place = self.place.name();
        let sent = self.sent(request)?;
        let mismatch = VerifyError::CredentialsMismatch { place };
        let secret = self.keys.admit(now, mismatch, |key| same(&sent, key.expose().as_bytes()))?;
        Ok(Verified::by(secret, None))
    }

    /// The credentials that the request carries.
    fn sent<'a>(&self, request: &Request<'a>) -> Result<Cow<'a, [u8]>, VerifyError> {
        let missing = || VerifyError::CredentialsMissing { place: self.place.name() };
        let malformed = || VerifyError::CredentialsMalformed { place: self.place.name() };
        match &self.place {
            SharedPlace::Header(name) => request.header(name).map(Cow::Borrowed).ok_or_else(missing),
            SharedPlace::Query(name) => request.parameter(name).filter(|value| !value.is_empty()).ok_or_else(missing),
            SharedPlace::Bearer => {
                let value = request.header("authorization").ok_or_else(missing)?;
                after_scheme(value, "bearer").map(Cow::Borrowed).ok_or_else(malformed)
            }
            SharedPlace::Basic => {
                let value = request.header("authorization").ok_or_else(missing)?;
                let encoded = after_scheme(value, "basic").ok_or_else(malformed)?;
                let end = encoded.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
                BASE64_NOPAD.decode(&encoded[..end]).map(Cow::Owned).map_err(|_| malformed())
            }
        }
    }
}

impl SharedPlace {
    pub(super) fn header(&self) -> Option<&str> {
        match self {
            SharedPlace::Bearer | SharedPlace::Basic => Some("authorization"),
            SharedPlace::Header(name) => Some(name),
            SharedPlace::Query(_) => None,
        }
    }

    fn name(&self) -> String {
        match self {
            SharedPlace::Bearer | SharedPlace::Basic => "the header authorization".to_owned(),
            SharedPlace::Header(name) => format!("the header {name}"),
            SharedPlace::Query(name) => format!("the query parameter {name}"),
        }
    }
}

/// What follows the name of an authentication scheme, which is written in any case.
fn after_scheme<'a>(value: &'a [u8], scheme: &str) -> Option<&'a [u8]> {
    let (own, rest) = value.split_at_checked(scheme.len())?;
    let credentials = rest.strip_prefix(b" ")?.trim_ascii();
    (own.eq_ignore_ascii_case(scheme.as_bytes()) && !credentials.is_empty()).then_some(credentials)
}
