//! Why a request failed verification.

/// Why a request failed verification. Closed: each variant has one stable code, and no message contains a secret or the
/// expected signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error("{location} is missing; it must carry the signature")]
    SignatureMissing {
        /// Where it was expected.
        location: String,
    },
    /// Not a signature that this scheme produces.
    #[error("the signature in {location} cannot be read: {problem}")]
    SignatureMalformed { location: String, problem: MalformedSignature },
    /// Made with another secret, or over another body, URL or time.
    #[error("the signature does not match: wrong secret, or the request was modified in transit")]
    SignatureMismatch,
    /// The signed URL carries the digest of another body.
    #[error("the body does not match the signed digest")]
    BodyMismatch,
    /// The signature matches a secret that is no longer accepted.
    #[error("signed with the expired secret \"{secret}\"")]
    SecretExpired {
        /// Name of the secret.
        secret: String,
    },
    #[error("{location} is missing; it must carry the signing time")]
    TimestampMissing { location: String },
    #[error("the signing time in {location} cannot be read")]
    TimestampMalformed { location: String },
    /// A replay, a slow path, or a wrong clock.
    #[error("signed {age_seconds} s ago; at most {tolerance_seconds} s are accepted")]
    TimestampTooOld { age_seconds: i64, tolerance_seconds: u64 },
    /// One of the two clocks is wrong.
    #[error("signed {ahead_seconds} s in the future; at most {tolerance_seconds} s are accepted")]
    TimestampInFuture { ahead_seconds: i64, tolerance_seconds: u64 },
    #[error("{location} is missing; it must carry the signed event id")]
    IdMissing { location: String },
    /// Could be confused with another part of the signed string.
    #[error("the event id in {location} is not allowed by this scheme")]
    IdMalformed { location: String },
    #[error("{location} is missing; it must carry the credentials")]
    CredentialsMissing { location: String },
    #[error("the credentials in {location} cannot be read")]
    CredentialsMalformed { location: String },
    #[error("the credentials in {location} do not match")]
    CredentialsMismatch { location: String },
    /// The scheme reads the body, which does not have the sender's format.
    #[error("the body cannot be read: {problem}")]
    BodyMalformed { problem: &'static str },
}

impl VerifyError {
    /// Stable code: part of the API, never renamed.
    pub fn code(&self) -> &'static str {
        match self {
            VerifyError::SignatureMissing { .. } => "signature-missing",
            VerifyError::SignatureMalformed { .. } => "signature-malformed",
            VerifyError::SignatureMismatch => "signature-mismatch",
            VerifyError::BodyMismatch => "body-mismatch",
            VerifyError::SecretExpired { .. } => "secret-expired",
            VerifyError::TimestampMissing { .. } => "timestamp-missing",
            VerifyError::TimestampMalformed { .. } => "timestamp-malformed",
            VerifyError::TimestampTooOld { .. } => "timestamp-too-old",
            VerifyError::TimestampInFuture { .. } => "timestamp-in-future",
            VerifyError::IdMissing { .. } => "id-missing",
            VerifyError::IdMalformed { .. } => "id-malformed",
            VerifyError::CredentialsMissing { .. } => "credentials-missing",
            VerifyError::CredentialsMalformed { .. } => "credentials-malformed",
            VerifyError::CredentialsMismatch { .. } => "credentials-mismatch",
            VerifyError::BodyMalformed { .. } => "body-malformed",
        }
    }

    pub(super) fn malformed(location: String, problem: MalformedSignature) -> VerifyError {
        VerifyError::SignatureMalformed { location, problem }
    }
}

/// Why a signature cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedSignature {
    #[error("it does not start with the expected prefix")]
    Prefix,
    /// No signature of a version that the scheme checks.
    #[error("it holds no signature of a known version")]
    NoKnownVersion,
    /// Neither hexadecimal nor base64, as the scheme requires.
    #[error("it is not in the expected encoding")]
    Encoding,
    /// Decoded length differs from that of the digest.
    #[error("it does not have the length of the digest")]
    Length,
    /// More than [`SIGNATURES_MAX`](super::SIGNATURES_MAX).
    #[error("it holds too many signatures")]
    TooMany,
}
