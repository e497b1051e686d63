//! Why a request was not believed.

/// Why a request was not believed. Closed: each variant has one stable code, and its message never
/// contains a secret or the signature that would have been right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The place where the signature belongs is empty.
    #[error("{place} is missing; it should carry the signature")]
    SignatureMissing {
        /// Where it was looked for.
        place: String,
    },
    /// There is a signature, but not one that this scheme can make.
    #[error("the signature in {place} cannot be read: {problem}")]
    SignatureMalformed {
        /// Where it was found.
        place: String,
        /// What is wrong with it.
        problem: MalformedSignature,
    },
    /// The signature belongs to another secret, another body, another URL or another time.
    #[error("the signature does not match: another secret, or the request was changed on its way")]
    SignatureMismatch,
    /// The digest of the body in the signed URL is not that of the body.
    #[error("the body is not the one whose digest was signed")]
    BodyMismatch,
    /// The signature is right, but by a secret that is no longer accepted.
    #[error("signed with the secret \"{secret}\", which has expired")]
    SecretExpired {
        /// The name of that secret.
        secret: String,
    },
    /// The signed timestamp is not there.
    #[error("{place} is missing; it should carry the time of signing")]
    TimestampMissing {
        /// Where it was looked for.
        place: String,
    },
    /// The signed timestamp is not in the form that the scheme uses.
    #[error("the time of signing in {place} cannot be read")]
    TimestampMalformed {
        /// Where it was found.
        place: String,
    },
    /// Signed too long ago: a replay, a slow path, or a clock that is wrong.
    #[error("signed {age_seconds} s ago; at most {tolerance_seconds} s are accepted")]
    TimestampTooOld {
        /// How long ago.
        age_seconds: i64,
        /// What is accepted.
        tolerance_seconds: u64,
    },
    /// Signed in the future: one of the two clocks is wrong.
    #[error("signed {ahead_seconds} s in the future; at most {tolerance_seconds} s are accepted")]
    TimestampInFuture {
        /// How far ahead.
        ahead_seconds: i64,
        /// What is accepted.
        tolerance_seconds: u64,
    },
    /// The signed event id is not there.
    #[error("{place} is missing; the id in it is part of what is signed")]
    IdMissing {
        /// Where it was looked for.
        place: String,
    },
    /// The signed event id could be mistaken for another part of the signed text.
    #[error("the id in {place} is not one that this scheme allows")]
    IdMalformed {
        /// Where it was found.
        place: String,
    },
    /// The token, key or password is not there.
    #[error("{place} is missing; it should carry the credentials")]
    CredentialsMissing {
        /// Where it was looked for.
        place: String,
    },
    /// The token, key or password is not in the form that the scheme uses.
    #[error("the credentials in {place} cannot be read")]
    CredentialsMalformed {
        /// Where they were found.
        place: String,
    },
    /// The token, key or password is another one.
    #[error("the credentials in {place} are not the configured ones")]
    CredentialsMismatch {
        /// Where they were found.
        place: String,
    },
    /// The scheme reads the body, and the body is not what the sender sends.
    #[error("the body cannot be read: {problem}")]
    BodyMalformed {
        /// What was expected.
        problem: &'static str,
    },
}

impl VerifyError {
    /// The stable code: part of the API, never renamed.
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

    pub(super) fn malformed(place: String, problem: MalformedSignature) -> VerifyError {
        VerifyError::SignatureMalformed { place, problem }
    }
}

/// What is wrong with a signature before it is even compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedSignature {
    /// The value does not start as it should.
    #[error("its prefix is not the expected one")]
    Prefix,
    /// The list holds no signature of a version that is checked.
    #[error("it holds no signature of a known version")]
    NoKnownVersion,
    /// Not hexadecimal or base64, whichever the scheme uses.
    #[error("it is not in the expected encoding")]
    Encoding,
    /// Decoded well, but too short or too long for the algorithm.
    #[error("it does not have the length of a digest")]
    Length,
    /// More signatures than [`SIGNATURES_MAX`](super::SIGNATURES_MAX).
    #[error("it holds too many signatures")]
    TooMany,
}
