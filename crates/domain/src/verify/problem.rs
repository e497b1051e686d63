//! Problems in the settings of a verifier.

use super::scheme::Scheme;
use super::template::SignedStringProblem;
use super::url::UrlProblem;

/// A problem in the settings of a verifier. No message contains a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsProblem {
    #[error("the scheme {0} needs at least one secret")]
    NoSecret(Scheme),
    /// An empty secret would accept an empty token or a predictable signature.
    #[error("the secret \"{0}\" is empty")]
    EmptySecret(String),
    #[error("the secret \"{secret}\" must be base64{after}; copy it again from the sender's console")]
    NotBase64 {
        /// Name of the secret.
        secret: String,
        /// The expected prefix, as part of the message.
        after: String,
    },
    #[error("the secret \"{0}\" must be hexadecimal")]
    NotHex(String),
    #[error("the public key \"{secret}\" cannot be read: it must be {expected}")]
    PublicKey { secret: String, expected: &'static str },
    #[error("the signing key cannot be read: it must be {0}")]
    SigningKey(&'static str),
    #[error("the secret \"{0}\" must be user:password, unless the user name is set separately")]
    NoUserName(String),
    /// The first colon ends the user name in HTTP Basic.
    #[error("a user name must not contain a colon")]
    UserNameColon,
    /// The scheme signs the URL.
    #[error("this scheme signs the URL; set the public URL that is configured at the sender")]
    PublicUrlMissing,
    #[error("invalid public URL: {0}")]
    PublicUrl(UrlProblem),
    /// `hmac` or `token` without the settings that describe it.
    #[error("the scheme {scheme} needs the setting {setting}")]
    SettingMissing { scheme: Scheme, setting: &'static str },
    /// The setting would have no effect.
    #[error("the scheme {scheme} does not use the setting {setting}")]
    SettingUnused { scheme: Scheme, setting: &'static str },
    #[error("\"{0}\" is not a valid header name")]
    HeaderName(String),
    #[error("\"{0}\" is not a path into a body")]
    Path(String),
    #[error("invalid signed string: {0}")]
    Template(SignedStringProblem),
    #[error("the signed string contains {{timestamp}}, but no source for it is set")]
    TimestampSourceMissing,
    /// A timestamp that is checked but not signed can be forged.
    #[error("a timestamp is set, but the signed string does not contain {{timestamp}}")]
    TimestampNotSigned,
    #[error("a tolerance is set, but this scheme signs no timestamp")]
    ToleranceWithoutTimestamp,
    #[error("the signed string contains {{id}}, but no header for it is set")]
    IdHeaderMissing,
    #[error("the timestamp is a field of the signature header, but that header is not a list")]
    FieldWithoutList,
    #[error("the separator between fields is the same as the one between key and value")]
    SeparatorClash,
}
