//! What is wrong with the settings of a verifier, for the person who wrote them.

use super::scheme::Scheme;
use super::template::SignedStringProblem;
use super::url::UrlProblem;

/// What is wrong with the settings of a verifier. No message contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsProblem {
    /// A scheme that compares something has nothing to compare with.
    #[error("the scheme {0} needs at least one secret")]
    NoSecret(Scheme),
    /// An empty secret would let an empty token or a guessable signature in.
    #[error("the secret \"{0}\" is empty")]
    EmptySecret(String),
    /// A secret that has to be base64 and is not.
    #[error("the secret \"{secret}\" has to be base64{after}; copy it again from the sender's console")]
    NotBase64 {
        /// The secret's name.
        secret: String,
        /// What comes before the base64, as part of the message.
        after: String,
    },
    /// A secret that has to be hexadecimal and is not.
    #[error("the secret \"{0}\" has to be hexadecimal")]
    NotHex(String),
    /// A public key that cannot be used.
    #[error("the public key \"{secret}\" cannot be read: it has to be {expected}")]
    PublicKey {
        /// The key's name.
        secret: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// A private key that cannot be used.
    #[error("the signing key cannot be read: it has to be {0}")]
    SigningKey(&'static str),
    /// HTTP Basic needs both halves.
    #[error("the secret \"{0}\" has to be user:password, unless the user name is set on its own")]
    NoUserName(String),
    /// HTTP Basic ends the user name at the first colon.
    #[error("a user name cannot hold a colon")]
    UserNameColon,
    /// A scheme that signs the URL does not know it.
    #[error("this scheme signs the URL: set the public URL that the sender was given")]
    PublicUrlMissing,
    /// The public URL cannot be one.
    #[error("the public URL is not usable: {0}")]
    PublicUrl(UrlProblem),
    /// `hmac` or `token` without the settings that describe it.
    #[error("the scheme {scheme} needs the setting {setting}")]
    SettingMissing {
        /// The scheme.
        scheme: Scheme,
        /// What it needs.
        setting: &'static str,
    },
    /// A setting that would silently have no effect.
    #[error("the scheme {scheme} has no use for the setting {setting}")]
    SettingUnused {
        /// The scheme.
        scheme: Scheme,
        /// What it does not use.
        setting: &'static str,
    },
    /// Not a header's name.
    #[error("\"{0}\" cannot be the name of a header")]
    HeaderName(String),
    /// Not a path into a body.
    #[error("\"{0}\" is not a path into a body")]
    Path(String),
    /// The signed string.
    #[error("the signed string is not usable: {0}")]
    Template(SignedStringProblem),
    /// `{timestamp}` with no place to take it from.
    #[error("the signed string holds {{timestamp}}, but no place to take it from is set")]
    TimestampSourceMissing,
    /// A timestamp that is checked but not signed can be changed by anyone.
    #[error("a timestamp is set, but the signed string does not hold {{timestamp}}")]
    TimestampNotSigned,
    /// A window for a time that the scheme does not carry.
    #[error("a tolerance is set, but this scheme signs no timestamp")]
    ToleranceWithoutTimestamp,
    /// `{id}` with no place to take it from.
    #[error("the signed string holds {{id}}, but no header to take it from is set")]
    IdHeaderMissing,
    /// A field of a header that has no fields.
    #[error("the timestamp is a field of the signature header, but that header is not a list")]
    FieldWithoutList,
    /// A comma cannot part both the fields and their halves.
    #[error("the same character separates the fields and assigns their values")]
    SeparatorClash,
}
