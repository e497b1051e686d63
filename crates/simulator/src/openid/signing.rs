//! Keys of the provider and the tokens that they sign, in the format of JWS. Written on the primitives, so that a client is not tested
//! with the library that it uses itself.

use std::io;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    RsaKeyPair, RsaPublicKeyComponents,
};
use aws_lc_rs::{hmac, rand};
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use serde_json::{Value, json};

/// Algorithm of the signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureKind {
    Rs256,
    Ps256,
    Es256,
    EdDsa,
}

impl SignatureKind {
    pub const ALL: [SignatureKind; 4] =
        [SignatureKind::Rs256, SignatureKind::Ps256, SignatureKind::Es256, SignatureKind::EdDsa];

    pub fn name(self) -> &'static str {
        match self {
            SignatureKind::Rs256 => "RS256",
            SignatureKind::Ps256 => "PS256",
            SignatureKind::Es256 => "ES256",
            SignatureKind::EdDsa => "EdDSA",
        }
    }
}

#[derive(Debug)]
enum PrivateKey {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

#[derive(Debug)]
pub(super) struct SigningKey {
    pub(super) id: String,
    kind: SignatureKind,
    key: PrivateKey,
}

fn failed(what: &str) -> io::Error {
    io::Error::other(format!("{what} failed"))
}

/// Random text.
pub(super) fn random() -> io::Result<String> {
    let mut bytes = [0; 24];
    rand::fill(&mut bytes).map_err(|_| failed("the random number generator"))?;
    Ok(HEXLOWER.encode(&bytes))
}

pub(super) fn base64(bytes: impl AsRef<[u8]>) -> String {
    BASE64URL_NOPAD.encode(bytes.as_ref())
}

impl SigningKey {
    pub(super) fn generate(kind: SignatureKind) -> io::Result<SigningKey> {
        let key = match kind {
            SignatureKind::Rs256 | SignatureKind::Ps256 => {
                PrivateKey::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).map_err(|_| failed("making a key"))?)
            }
            SignatureKind::Es256 => {
                let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
                PrivateKey::Ec(pair.map_err(|_| failed("making a key"))?)
            }
            SignatureKind::EdDsa => PrivateKey::Ed(Ed25519KeyPair::generate().map_err(|_| failed("making a key"))?),
        };
        Ok(SigningKey { id: random()?, kind, key })
    }

    pub(super) fn kind(&self) -> SignatureKind {
        self.kind
    }

    /// The public key, as a member of a key set.
    pub(super) fn public(&self) -> Value {
        let mut key = match &self.key {
            PrivateKey::Rsa(pair) => {
                let parts = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public_key());
                json!({ "kty": "RSA", "n": base64(parts.n), "e": base64(parts.e) })
            }
            PrivateKey::Ec(pair) => {
                // A byte for the form, then both coordinates.
                let point = pair.public_key().as_ref();
                json!({ "kty": "EC", "crv": "P-256", "x": base64(&point[1..33]), "y": base64(&point[33..65]) })
            }
            PrivateKey::Ed(pair) => json!({ "kty": "OKP", "crv": "Ed25519", "x": base64(pair.public_key()) }),
        };
        key["kid"] = self.id.clone().into();
        key["use"] = "sig".into();
        key["alg"] = self.kind.name().into();
        key
    }

    pub(super) fn header(&self) -> Value {
        json!({ "alg": self.kind.name(), "typ": "JWT", "kid": self.id })
    }

    pub(super) fn sign(&self, header: &Value, claims: &Value) -> io::Result<String> {
        let message = message(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.key {
            PrivateKey::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let padding: &'static dyn aws_lc_rs::signature::RsaEncoding = match self.kind {
                    SignatureKind::Ps256 => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                pair.sign(padding, &random, message.as_bytes(), &mut signature).map_err(|_| failed("signing"))?;
                signature
            }
            PrivateKey::Ec(pair) => {
                pair.sign(&random, message.as_bytes()).map_err(|_| failed("signing"))?.as_ref().to_vec()
            }
            PrivateKey::Ed(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
        };
        Ok(format!("{message}.{}", base64(signature)))
    }

    /// Signed with HS256, the public key being the secret.
    pub(super) fn sign_with_public_key(&self, claims: &Value) -> String {
        let message = message(&json!({ "alg": "HS256", "typ": "JWT", "kid": self.id }), claims);
        let secret = self.public().to_string();
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), message.as_bytes());
        format!("{message}.{}", base64(tag))
    }
}

/// Not signed at all.
pub(super) fn unsigned(claims: &Value) -> String {
    format!("{}.", message(&json!({ "alg": "none", "typ": "JWT" }), claims))
}

fn message(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64(header.to_string()), base64(claims.to_string()))
}
