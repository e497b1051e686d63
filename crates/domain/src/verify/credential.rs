//! Where a sender puts its credentials, for API descriptions.

use super::hmac::TimestampLocation;
use super::hmac_settings::SignatureHeader;
use super::shared_secret::SharedLocation;
use super::verifier::{Check, Verifier};
use super::{sendgrid, twilio};

/// Location of a credential in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialLocation {
    /// `Authorization: Bearer …`
    Bearer,
    /// `Authorization: Basic …`
    Basic,
    /// A token in this header.
    Token(String),
    /// A token in this query parameter.
    Query(String),
    /// A signature, or a signed value, in this header.
    Signed(String),
    /// In the body, in a format of the sender.
    Body,
}

impl Verifier {
    /// Locations of the credentials. If one of several headers suffices, the first.
    pub fn credential_locations(&self) -> Vec<CredentialLocation> {
        let signed = |name: &str| CredentialLocation::Signed(name.to_owned());
        match &self.check {
            Check::Hmac(check) => {
                let (SignatureHeader::One(name)
                | SignatureHeader::FirstOf(name, _)
                | SignatureHeader::EitherOf(name, _)) = &check.header;
                let signed_at = match check.timestamp.as_ref().map(|source| &source.location) {
                    Some(TimestampLocation::Header(name)) => Some(name),
                    _ => None,
                };
                [Some(name), signed_at, check.id_header.as_ref()]
                    .into_iter()
                    .flatten()
                    .map(|name| signed(name))
                    .collect()
            }
            Check::Standard(check) => check.headers().map(signed).to_vec(),
            Check::Hubspot(check) => check.headers().iter().map(|name| signed(name)).collect(),
            Check::Twilio(_) => vec![signed(twilio::SIGNATURE)],
            Check::Sendgrid(_) => vec![signed(sendgrid::SIGNATURE), signed(sendgrid::TIMESTAMP)],
            Check::Mailgun(_) | Check::Google(_) | Check::Graph(_) => vec![CredentialLocation::Body],
            Check::Shared(check) => vec![match &check.location {
                SharedLocation::Bearer => CredentialLocation::Bearer,
                SharedLocation::Basic => CredentialLocation::Basic,
                SharedLocation::Header(name) => CredentialLocation::Token(name.to_string()),
                SharedLocation::Query(name) => CredentialLocation::Query(name.to_string()),
            }],
            Check::None => vec![],
        }
    }
}
