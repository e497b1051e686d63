//! Sign-in by an OpenID provider: authorization code flow with PKCE. What is decided, without a network and a clock.
//!
//! A sign-in is [started](PendingSignIn) in a browser, the provider sends the browser back with a code, the node redeems the code for an
//! [ID token](IdToken), and the claims of the token [decide](OidcSettings::admit) who signs in with which role.

mod id_token;
mod keys;
mod pending;
mod provider;
mod rights;

use std::time::Duration;

pub use id_token::{Expected, IdToken, TokenProblem};
pub use keys::{KEYS_MAX, KeySet, SigningAlgorithm};
pub use pending::{Callback, PendingSignIn, SignInKey, UsedSignIns};
pub use provider::{ClientAuthentication, Discovery, issuer_problem, public_url_problem};
pub use rights::{GroupRights, OidcSettings, ProviderUser};

/// A sign-in must be finished within this time.
pub const SIGN_IN_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// By how much the clocks of the node and the provider may differ.
pub const CLOCK_LEEWAY: Duration = Duration::from_secs(60);
/// The provider's own description is read again after this time, and its keys.
pub const PROVIDER_CACHED: Duration = Duration::from_secs(60 * 60);
/// A token with an unknown key makes the node read the keys again, at most once in this time.
pub const KEYS_READ_EVERY: Duration = Duration::from_secs(60);
/// After a failure the provider is not asked again for this time.
pub const PROVIDER_RETRY_AFTER: Duration = Duration::from_secs(5);
/// Path that the provider sends the browser to, below the public URL.
pub const CALLBACK_PATH: &str = "/sign-in/oidc/callback";
/// Path that starts a sign-in, below the public URL.
pub const START_PATH: &str = "/sign-in/oidc";
/// Before the name of a user whom a provider names. A local user's name has no colon, so neither can become the other.
pub const USER_PREFIX: &str = "oidc:";

/// Why an answer of the browser or of the provider does not sign in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OidcRefusal {
    #[error("no sign-in was started in this browser, or it took longer than 10 minutes; start again")]
    NotStarted,
    #[error("this answer belongs to another sign-in; start again")]
    WrongState,
    #[error("this sign-in has been used; start again")]
    Used,
    #[error("this answer is not from the configured provider; start again")]
    WrongIssuer,
    /// Error code and description of the provider, shortened.
    #[error("the provider says: {0}")]
    Provider(String),
    #[error("the answer of the provider has no code; start again")]
    NoCode,
    #[error("the ID token was refused: {0}")]
    Token(#[from] TokenProblem),
    #[error("the ID token has no claim `{0}` that can name a user")]
    NoName(String),
    #[error("{user} is signed in at the provider, but has no group with a role here; ask an administrator")]
    NoRole {
        /// With the prefix.
        user: String,
    },
}

#[cfg(test)]
mod tests;
