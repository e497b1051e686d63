//! ID tokens, right and wrong.

use std::io;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::signing::{SigningKey, base64, random, unsigned};
use super::{Mistake, OpenIdUser};

/// An ID token is valid for this time, in seconds.
const LIFETIME_SECONDS: i64 = 300;

/// What an ID token is about.
#[derive(Debug)]
pub(super) struct TokenSubject<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    pub(super) user: &'a OpenIdUser,
    pub(super) nonce: Option<&'a str>,
}

/// An ID token with a mistake, if there is one.
pub(super) fn id_token(subject: &TokenSubject<'_>, key: &SigningKey, mistake: Option<Mistake>) -> io::Result<String> {
    let claims = claims(subject, mistake);
    let stranger = || SigningKey::generate(key.kind());
    match mistake {
        Some(Mistake::OtherKey) => stranger()?.sign(&key.header(), &claims),
        Some(Mistake::UnknownKey) => {
            let stranger = stranger()?;
            stranger.sign(&stranger.header(), &claims)
        }
        Some(Mistake::NoSignature) => Ok(unsigned(&claims)),
        Some(Mistake::HmacWithPublicKey) => Ok(key.sign_with_public_key(&claims)),
        Some(Mistake::EmbeddedKey) => {
            let stranger = stranger()?;
            let mut header = stranger.header();
            header["jwk"] = stranger.public();
            stranger.sign(&header, &claims)
        }
        Some(Mistake::CriticalHeader) => {
            let mut header = key.header();
            header["crit"] = json!(["urn:example:unknown"]);
            header["urn:example:unknown"] = json!(true);
            key.sign(&header, &claims)
        }
        _ => key.sign(&key.header(), &claims),
    }
}

fn claims(subject: &TokenSubject<'_>, mistake: Option<Mistake>) -> Value {
    let now = Timestamp::now().as_second();
    let issued = match mistake {
        Some(Mistake::Expired) => now - 7_200,
        Some(Mistake::Future) => now + 3_600,
        _ => now,
    };
    let mut claims = subject.user.claims.clone();
    claims["iss"] = match mistake {
        Some(Mistake::WrongIssuer) => "https://other.example".into(),
        _ => subject.issuer.into(),
    };
    claims["aud"] = match mistake {
        Some(Mistake::WrongAudience) => "another-client".into(),
        Some(Mistake::SeveralAudiences) => json!([subject.client_id, "another-client"]),
        _ => subject.client_id.into(),
    };
    if mistake == Some(Mistake::WrongParty) {
        claims["azp"] = "another-client".into();
    }
    claims["iat"] = issued.into();
    claims["exp"] = (issued + LIFETIME_SECONDS).into();
    let nonce = match mistake {
        Some(Mistake::WrongNonce) => Some("another-nonce"),
        Some(Mistake::NoNonce) => None,
        _ => subject.nonce,
    };
    if let Some(nonce) = nonce {
        claims["nonce"] = nonce.into();
    }
    claims
}

pub(super) fn access_token() -> io::Result<String> {
    random()
}

/// Challenge of a PKCE verifier, by S256.
pub(super) fn challenge_of(verifier: &str) -> String {
    base64(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, verifier.as_bytes()))
}
