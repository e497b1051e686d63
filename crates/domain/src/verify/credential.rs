//! Where a sender's proof stands in its request, for whoever describes a flow.

use super::hmac::StampPlace;
use super::hmac_settings::SignatureHeader;
use super::shared_secret::SharedPlace;
use super::verifier::{Check, Verifier};
use super::{sendgrid, twilio};

/// A place in a request that a sender has to fill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialLocation {
    /// `Authorization: Bearer …`
    Bearer,
    /// `Authorization: Basic …`
    Basic,
    /// A token as it is, in this header.
    Token(String),
    /// A token as it is, under this name in the query.
    Query(String),
    /// A signature or something that is signed, in this header.
    Signed(String),
    /// In the body, by the sender's own rules.
    Body,
}

impl Verifier {
    /// Where the proof stands. Where one of several headers will do, the first of them.
    pub fn proof(&self) -> Vec<CredentialLocation> {
        let signed = |name: &str| CredentialLocation::Signed(name.to_owned());
        match &self.check {
            Check::Hmac(check) => {
                let (SignatureHeader::One(name)
                | SignatureHeader::FirstOf(name, _)
                | SignatureHeader::EitherOf(name, _)) = &check.header;
                let stamp = match check.timestamp.as_ref().map(|source| &source.place) {
                    Some(StampPlace::Header(name)) => Some(name),
                    _ => None,
                };
                [Some(name), stamp, check.id_header.as_ref()].into_iter().flatten().map(|name| signed(name)).collect()
            }
            Check::Standard(check) => check.headers().map(signed).to_vec(),
            Check::Hubspot(check) => check.headers().iter().map(|name| signed(name)).collect(),
            Check::Twilio(_) => vec![signed(twilio::SIGNATURE)],
            Check::Sendgrid(_) => vec![signed(sendgrid::SIGNATURE), signed(sendgrid::TIMESTAMP)],
            Check::Mailgun(_) | Check::Google(_) | Check::Graph(_) => vec![CredentialLocation::Body],
            Check::Shared(check) => vec![match &check.place {
                SharedPlace::Bearer => CredentialLocation::Bearer,
                SharedPlace::Basic => CredentialLocation::Basic,
                SharedPlace::Header(name) => CredentialLocation::Token(name.to_string()),
                SharedPlace::Query(name) => CredentialLocation::Query(name.to_string()),
            }],
            Check::None => vec![],
        }
    }
}
