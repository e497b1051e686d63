//! Signed assertion of the OAuth JWT bearer flow (RFC 7523), with RS256.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use data_encoding::BASE64URL_NOPAD;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::time::Time;
use sluice_domain::verify::SecretValue;

/// An assertion is used at once. Authorization servers accept a few minutes, so that clocks may differ.
const LIFETIME_SECONDS: i64 = 180;

/// Claims and key of an application.
pub(crate) struct Assertion {
    claims: Claims,
    key: RsaKeyPair,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    pub(crate) issuer: String,
    pub(crate) subject: Option<String>,
    pub(crate) audience: String,
    /// Google's token endpoint reads the scopes from the assertion.
    pub(crate) scope: Option<String>,
}

impl std::fmt::Debug for Assertion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Assertion").field("claims", &self.claims).finish_non_exhaustive()
    }
}

impl Assertion {
    /// Reads the private key, in PEM format (PKCS#8 or PKCS#1). The error names the invalid key.
    pub(crate) fn new(
        issuer: &str,
        subject: &str,
        audience: &str,
        private_key: &SecretValue,
    ) -> Result<Assertion, String> {
        let (issuer, subject, audience) = (issuer.to_owned(), Some(subject.to_owned()), audience.to_owned());
        Assertion::with_claims(Claims { issuer, subject, audience, scope: None }, private_key)
    }

    /// As [`Assertion::new`].
    pub(crate) fn with_claims(claims: Claims, private_key: &SecretValue) -> Result<Assertion, String> {
        let refused =
            |reason: &str| format!("auth.private_key: {reason}; write an RSA key of 2048 bits or more in PEM format");
        let pem = PrivateKeyDer::from_pem_slice(private_key.expose().as_bytes())
            .map_err(|_| refused("is not a private key in PEM format"))?;
        let key = match &pem {
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            _ => return Err(refused("is not an RSA key")),
        };
        let key = key.map_err(|error| refused(&format!("is not accepted ({error})")))?;
        Ok(Assertion { claims, key })
    }

    /// The signed assertion.
    pub(crate) fn sign(&self, now: Time) -> Result<String, Failure> {
        let Claims { issuer, subject, audience, scope } = &self.claims;
        let mut claims = json!({
            "iss": issuer,
            "aud": audience,
            "iat": now.seconds(),
            "exp": now.seconds() + LIFETIME_SECONDS,
        });
        for (name, value) in [("sub", subject), ("scope", scope)] {
            if let Some(value) = value {
                claims[name] = value.as_str().into();
            }
        }
        let header = BASE64URL_NOPAD.encode(br#"{"alg":"RS256","typ":"JWT"}"#);
        let signed = format!("{header}.{}", BASE64URL_NOPAD.encode(claims.to_string().as_bytes()));
        let mut signature = vec![0; self.key.public_modulus_len()];
        let rng = SystemRandom::new();
        self.key.sign(&RSA_PKCS1_SHA256, &rng, signed.as_bytes(), &mut signature).map_err(|_| {
            Failure::new(
                FailureClass::Auth,
                "invalid-key",
                "No token: the assertion cannot be signed with auth.private_key.",
            )
        })?;
        Ok(format!("{signed}.{}", BASE64URL_NOPAD.encode(&signature)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    use aws_lc_rs::rsa::KeySize;
    use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use serde_json::Value;

    fn pem(key: &RsaKeyPair) -> String {
        let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
        let text = data_encoding::BASE64.encode(der.as_ref());
        let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", lines.join("\n"))
    }

    #[test]
    fn assertion_is_signed_and_expires_soon() {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
        let assertion = Assertion::new("app", "ann@example.com", "https://login.example", &pem(&key).into()).unwrap();
        assert!(!format!("{assertion:?}").contains("PRIVATE"));
        let now = Time::parse("2026-03-01T12:00:00Z").unwrap();
        let text = assertion.sign(now).unwrap();
        let (signed, signature) = text.rsplit_once('.').unwrap();
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
        public.verify(signed.as_bytes(), &signature).unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let read =
            |part: &str| serde_json::from_slice::<Value>(&BASE64URL_NOPAD.decode(part.as_bytes()).unwrap()).unwrap();
        assert_eq!(read(header)["alg"], "RS256");
        let expected = json!({"iss": "app", "sub": "ann@example.com", "aud": "https://login.example", "iat": now.seconds(), "exp": now.seconds() + 180});
        assert_eq!(read(claims), expected);
        let (issuer, audience, scope) = ("app".to_owned(), "aud".to_owned(), Some("push".to_owned()));
        let claims = Claims { issuer, subject: None, audience, scope };
        let text = Assertion::with_claims(claims, &pem(&key).into()).unwrap().sign(now).unwrap();
        let claims = read(text.split('.').nth(1).unwrap());
        assert_eq!((&claims["scope"], claims.get("sub")), (&json!("push"), None));
    }

    #[test]
    fn invalid_key_is_rejected_without_being_quoted() {
        let problem = Assertion::new("a", "b", "c", &"hunter2-not-a-key".into()).unwrap_err();
        assert!(problem.starts_with("auth.private_key:") && !problem.contains("hunter2"), "{problem}");
    }
}
