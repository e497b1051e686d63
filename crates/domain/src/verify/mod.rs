//! Whether a request comes from whom it should: signatures, tokens, handshakes.
//!
//! [`Settings`] is what a configuration says; [`Verifier::new`] decodes every key once and explains
//! what is wrong; [`verify`] decides on the raw bytes of a [`Request`], in constant time where it
//! matters. [`handshake`] answers the requests that only ask whether somebody is there, [`sign`] makes
//! what a sender would send, and [`preset`] knows the rest about each sender.

mod body_signature;
mod credential;
mod digest;
mod error;
mod freshness;
mod handshake;
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
pub use handshake::{HandshakeAnswer, handshake};
pub use hmac::{HEADER_MARKS, is_header_name};
pub use hmac_settings::{
    Assign, HmacSettings, Layout, SecretEncoding, Separator, SignatureHeader, TimestampSettings, TimestampSource,
};
pub use hubspot::HubspotVersion;
pub use preset::{BodyForm, Composed, FieldLocation, FieldPath, Preset, Success, preset};
pub use problem::SettingsProblem;
pub use request::{HeaderSource, Request};
pub use scheme::{Scheme, UnknownScheme};
pub use secret::{Secret, SecretValue};
pub use shared_secret::TokenPlace;
pub use sign::{SignProblem, SignedRequest, UnsignedRequest, sign};
pub use template::SignedStringProblem;
pub(crate) use text::{form_pairs, percent_encode};
pub use url::UrlProblem;
pub use verifier::{Verified, Verifier, VerifierSettings, verify};
