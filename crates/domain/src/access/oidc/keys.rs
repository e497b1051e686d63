//! Public keys of a provider (JWKS), and the algorithms that each may be used with.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

/// Keys of a provider that are kept; further ones are left out.
pub const KEYS_MAX: usize = 100;

/// Algorithms that are accepted: signatures with a private key only. A shared secret (HS256) and `none` are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl SigningAlgorithm {
    const ALL: [(SigningAlgorithm, &'static str, Algorithm); 9] = [
        (SigningAlgorithm::Rs256, "RS256", Algorithm::RS256),
        (SigningAlgorithm::Rs384, "RS384", Algorithm::RS384),
        (SigningAlgorithm::Rs512, "RS512", Algorithm::RS512),
        (SigningAlgorithm::Ps256, "PS256", Algorithm::PS256),
        (SigningAlgorithm::Ps384, "PS384", Algorithm::PS384),
        (SigningAlgorithm::Ps512, "PS512", Algorithm::PS512),
        (SigningAlgorithm::Es256, "ES256", Algorithm::ES256),
        (SigningAlgorithm::Es384, "ES384", Algorithm::ES384),
        (SigningAlgorithm::EdDsa, "EdDSA", Algorithm::EdDSA),
    ];

    pub fn parse(name: &str) -> Option<SigningAlgorithm> {
        SigningAlgorithm::ALL.into_iter().find(|(_, known, _)| *known == name).map(|(algorithm, ..)| algorithm)
    }

    pub fn name(self) -> &'static str {
        SigningAlgorithm::ALL.into_iter().find(|(algorithm, ..)| *algorithm == self).map_or("", |(_, name, _)| name)
    }

    pub(super) fn of_library(algorithm: Algorithm) -> Option<SigningAlgorithm> {
        SigningAlgorithm::ALL.into_iter().find(|(.., known)| *known == algorithm).map(|(algorithm, ..)| algorithm)
    }

    pub(super) fn to_library(self) -> Algorithm {
        SigningAlgorithm::ALL
            .into_iter()
            .find(|(algorithm, ..)| *algorithm == self)
            .map_or(Algorithm::RS256, |(.., known)| known)
    }

    /// Whether a key of this type makes such signatures.
    fn fits(self, parameters: &AlgorithmParameters) -> bool {
        use SigningAlgorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        match (parameters, self) {
            (AlgorithmParameters::RSA(_), Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512) => true,
            (AlgorithmParameters::EllipticCurve(key), Es256) => key.curve == EllipticCurve::P256,
            (AlgorithmParameters::EllipticCurve(key), Es384) => key.curve == EllipticCurve::P384,
            (AlgorithmParameters::OctetKeyPair(key), EdDsa) => key.curve == EllipticCurve::Ed25519,
            _ => false,
        }
    }
}

/// Keys of a provider that verify signatures.
#[derive(Clone, Debug, Default)]
pub struct KeySet(Vec<Jwk>);

impl KeySet {
    /// Reads a JWKS document. Keys for other purposes, of other types and malformed ones are left out.
    pub fn read(document: &Value) -> Result<KeySet, String> {
        let keys = document.get("keys").and_then(Value::as_array).ok_or("the key set has no list `keys`")?;
        let read = keys.iter().filter_map(|key| serde_json::from_value::<Jwk>(key.clone()).ok());
        let verifies = |key: &Jwk| {
            let is_for_signatures = matches!(key.common.public_key_use, None | Some(PublicKeyUse::Signature));
            is_for_signatures && SigningAlgorithm::ALL.iter().any(|(algorithm, ..)| algorithm.fits(&key.algorithm))
        };
        Ok(KeySet(read.filter(verifies).take(KEYS_MAX).collect()))
    }

    /// The key that must have made a signature. Without a key id only a single key counts: the token does not choose among several.
    pub(super) fn find(&self, id: Option<&str>, algorithm: SigningAlgorithm) -> Option<DecodingKey> {
        let is_named = |key: &&Jwk| id.is_none() || key.common.key_id.as_deref() == id;
        let is_for = |key: &&Jwk| match key.common.key_algorithm {
            Some(declared) => is_same(declared, algorithm),
            None => true,
        };
        let mut found = self.0.iter().filter(is_named).filter(|key| algorithm.fits(&key.algorithm)).filter(is_for);
        match (found.next(), found.next()) {
            (Some(key), None) => DecodingKey::from_jwk(key).ok(),
            _ => None,
        }
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether the algorithm that a key declares is this one.
fn is_same(declared: KeyAlgorithm, algorithm: SigningAlgorithm) -> bool {
    declared.to_string() == algorithm.name()
}
