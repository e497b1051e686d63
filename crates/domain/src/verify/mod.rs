//! Verifies the origin of a request: signatures, tokens, handshakes.
//!
//! [`VerifierSettings`] hold the configuration; [`Verifier::new`] decodes every key once and reports problems; [`verify`]
//! decides on the raw bytes of a [`Request`], in constant time where it matters. [`handshake`] answers requests that only
//! probe the endpoint, [`sign`] signs a request as its sender would, and [`preset`] holds further facts about each sender.

mod body_signature;
mod credential;
mod digest;
mod error;
mod freshness;
mod handshake;
mod headers;
mod hmac;
mod hmac_presets;
mod hmac_settings;
mod hubspot;
mod preset;
mod problem;
mod request;
mod scheme;
mod secret;
mod sendgrid;
mod shared_secret;
mod sign;
mod standard;
mod template;
mod text;
mod twilio;
mod url;
mod verifier;

pub use credential::CredentialLocation;
pub use digest::{Algorithm, Encoding, SIGNATURES_MAX};
pub use error::{MalformedSignature, VerifyError};
pub use freshness::TimestampUnit;
pub use handshake::{HandshakeResponse, handshake};
pub use headers::Coverage;
pub use hmac::{HEADER_NAME_SYMBOLS, is_header_name};
pub use hmac_settings::{
    Assign, HmacSettings, Layout, SecretEncoding, Separator, SignatureHeader, TimestampSettings, TimestampSource,
};
pub use hubspot::HubspotVersion;
pub use preset::{BodyForm, CompositeField, FieldLocation, FieldPath, Preset, Success, preset};
pub use problem::SettingsProblem;
pub use request::{HeaderSource, Request};
pub use scheme::{Scheme, UnknownScheme};
pub use secret::{Secret, SecretValue};
pub use shared_secret::TokenLocation;
pub use sign::{SignProblem, SignedRequest, UnsignedRequest, sign, sign_for};
pub use template::SignedStringProblem;
pub(crate) use text::{form_pairs, percent_encode};
pub use url::UrlProblem;
pub use verifier::{Verified, Verifier, VerifierSettings, verify};
