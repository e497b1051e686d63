//! Headers that a scheme reads, and what its signature covers.

use super::hmac::TimestampLocation;
use super::hmac_settings::SignatureHeader;
use super::scheme::Scheme;
use super::verifier::{Check, Verifier};
use super::{hubspot, sendgrid, standard, twilio};

/// What a signature covers. Whoever captures a request can change everything else in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage<'v> {
    pub body: bool,
    /// In lower case. Headers of a family that a request was not verified with are not passed on.
    pub headers: Vec<&'v str>,
}

impl Coverage<'_> {
    /// True if the signature covers the value of this header, given in lower case.
    pub fn has_header(&self, name: &str) -> bool {
        self.headers.contains(&name)
    }
}

impl Verifier {
    /// Headers that the scheme reads, in lower case. Two values of one of them could be read differently by two readers, so a
    /// request may carry each of them once only.
    pub fn headers_read(&self) -> Vec<&str> {
        let mut names: Vec<&str> = match &self.check {
            Check::Hmac(check) => {
                let mut names = match &check.header {
                    SignatureHeader::One(name) => vec![name.as_ref()],
                    SignatureHeader::FirstOf(first, second) | SignatureHeader::EitherOf(first, second) => {
                        vec![first.as_ref(), second.as_ref()]
                    }
                };
                names.extend(check.timestamp_header());
                names.extend(check.id_header.as_deref());
                names
            }
            Check::Standard(_) => {
                [standard::STANDARD, standard::SVIX].iter().flat_map(|family| family.names()).collect()
            }
            Check::Hubspot(_) => hubspot::HEADERS.to_vec(),
            Check::Twilio(_) => vec![twilio::SIGNATURE],
            Check::Sendgrid(_) => vec![sendgrid::SIGNATURE, sendgrid::TIMESTAMP],
            Check::Shared(check) => check.location.header().into_iter().collect(),
            Check::Mailgun(_) | Check::Google(_) | Check::Graph(_) | Check::None => vec![],
        };
        // Read by the handshake.
        if self.scheme() == Scheme::Github {
            names.push("x-github-event");
        }
        names
    }

    /// What the signature covers; nothing for schemes that send a credential in plain text.
    pub fn coverage(&self) -> Coverage<'_> {
        match &self.check {
            Check::Hmac(check) => {
                let id = check.id_header.as_deref().filter(|_| check.signs_id());
                Coverage { body: true, headers: check.timestamp_header().into_iter().chain(id).collect() }
            }
            Check::Standard(_) => {
                let signed = [standard::STANDARD, standard::SVIX].map(|family| family.signed());
                Coverage { body: true, headers: signed.concat() }
            }
            Check::Hubspot(_) | Check::Twilio(_) => Coverage { body: true, headers: vec![] },
            Check::Sendgrid(_) => Coverage { body: true, headers: vec![sendgrid::TIMESTAMP] },
            Check::Mailgun(_) | Check::Google(_) | Check::Graph(_) | Check::Shared(_) | Check::None => {
                Coverage::default()
            }
        }
    }
}

impl super::hmac::HmacCheck {
    fn timestamp_header(&self) -> Option<&str> {
        match self.timestamp.as_ref().map(|source| &source.location) {
            Some(TimestampLocation::Header(name)) => Some(name),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::{HmacSettings, Secret, VerifierSettings};

    fn verifier(scheme: Scheme, hmac: Option<HmacSettings>) -> Verifier {
        let secret = Secret::new("main", "whsec_c2VjcmV0c2VjcmV0c2VjcmV0");
        Verifier::new(VerifierSettings { hmac, ..VerifierSettings::new(scheme, vec![secret]) }).unwrap()
    }

    #[test]
    fn ids_are_covered_only_where_the_scheme_signs_them() {
        let covers = |scheme, header: &str| verifier(scheme, None).coverage().has_header(header);
        assert!(covers(Scheme::Svix, "svix-id") && covers(Scheme::StandardWebhooks, "webhook-id"));
        assert!(!covers(Scheme::Shopify, "x-shopify-event-id") && !covers(Scheme::Github, "x-github-delivery"));
        assert!(covers(Scheme::Zendesk, "x-zendesk-webhook-signature-timestamp"));
        assert!(!covers(Scheme::Zendesk, "x-zendesk-webhook-invocation-id"));
        assert!(verifier(Scheme::Github, None).coverage().body);
        assert_eq!(verifier(Scheme::Bearer, None).coverage(), Coverage::default());
    }

    #[test]
    fn general_scheme_covers_what_its_signed_string_names() {
        let mut hmac = HmacSettings { id_header: Some("X-Id".into()), ..HmacSettings::new("X-Signature") };
        assert_eq!(verifier(Scheme::Hmac, Some(hmac.clone())).coverage(), Coverage { body: true, headers: vec![] });
        hmac.signed = "{id}.{body}".into();
        let verifier = verifier(Scheme::Hmac, Some(hmac));
        assert_eq!(verifier.coverage(), Coverage { body: true, headers: vec!["x-id"] });
        assert_eq!(verifier.headers_read(), ["x-signature", "x-id"]);
    }
}
