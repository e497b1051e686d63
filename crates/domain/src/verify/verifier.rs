//! Builds a verifier from its settings, and dispatches over the schemes.

use std::time::Duration;

use jiff::Timestamp;

use super::body_signature::{GoogleCheck, GraphCheck, MailgunCheck};
use super::error::VerifyError;
use super::hmac::HmacCheck;
use super::hmac_presets;
use super::hmac_settings::HmacSettings;
use super::hubspot::{HubspotCheck, HubspotVersion};
use super::problem::SettingsProblem;
use super::request::Request;
use super::scheme::Scheme;
use super::secret::{Secret, SecretValue};
use super::sendgrid::SendgridCheck;
use super::shared_secret::{SharedCheck, TokenLocation};
use super::standard::{STANDARD, SVIX, StandardCheck};
use super::twilio::TwilioCheck;
use super::url::PublicUrl;

/// Default tolerance of a general HMAC with a timestamp; recommended by most senders.
const HMAC_TOLERANCE: Duration = Duration::from_secs(300);

/// Settings of a verifier as configured, not validated.
#[derive(Clone, Debug)]
pub struct VerifierSettings {
    pub scheme: Scheme,
    /// All are tried; the first accepted one also signs. Includes public keys.
    pub secrets: Vec<Secret>,
    /// Maximum distance between signing time and now, in either direction; the default of the scheme if `None`.
    pub tolerance: Option<Duration>,
    /// URL as configured at the sender. Required by schemes that sign it.
    pub public_url: Option<String>,
    /// For `hubspot`.
    pub hubspot_version: HubspotVersion,
    /// Required for `hmac`.
    pub hmac: Option<HmacSettings>,
    /// Required for `token`.
    pub token: Option<TokenLocation>,
    /// For `basic`, `pipedrive` and `postmark`: each secret is then a password only.
    pub user_name: Option<String>,
    /// For `meta`: token of the subscription handshake.
    pub verify_token: Option<SecretValue>,
    /// Private key for signing test requests, for `standard-webhooks`, `svix` and `sendgrid` with public keys as secrets.
    pub signing_key: Option<SecretValue>,
}

impl VerifierSettings {
    /// Settings of a scheme that needs only secrets.
    pub fn new(scheme: Scheme, secrets: Vec<Secret>) -> VerifierSettings {
        VerifierSettings {
            scheme,
            secrets,
            tolerance: None,
            public_url: None,
            hubspot_version: HubspotVersion::Auto,
            hmac: None,
            token: None,
            user_name: None,
            verify_token: None,
            signing_key: None,
        }
    }
}

/// Validated settings with decoded keys.
#[derive(Clone, Debug)]
pub struct Verifier {
    scheme: Scheme,
    pub(super) check: Check,
    pub(super) verify_token: Option<SecretValue>,
}

/// One variant per verification method.
#[derive(Clone, Debug)]
pub(super) enum Check {
    Hmac(HmacCheck),
    Standard(StandardCheck),
    Hubspot(HubspotCheck),
    Twilio(TwilioCheck),
    Sendgrid(SendgridCheck),
    Mailgun(MailgunCheck),
    Google(GoogleCheck),
    Graph(GraphCheck),
    Shared(SharedCheck),
    None,
}

impl Verifier {
    /// Validates the settings and decodes the keys.
    pub fn new(settings: VerifierSettings) -> Result<Verifier, SettingsProblem> {
        let scheme = settings.scheme;
        check_secrets(scheme, &settings.secrets)?;
        check_unused(&settings)?;
        let url = settings.public_url.as_deref().map(PublicUrl::parse).transpose();
        let url = url.map_err(SettingsProblem::PublicUrl)?;
        let check = Check::new(&settings, url)?;
        Ok(Verifier { scheme, check, verify_token: settings.verify_token })
    }

    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The header that carries a credential in plain text, in lower case: it must not be stored. `None` for schemes that sign.
    pub fn credential_header(&self) -> Option<&str> {
        match &self.check {
            Check::Shared(check) => check.location.header(),
            _ => None,
        }
    }
}

impl Check {
    fn new(settings: &VerifierSettings, url: Option<PublicUrl>) -> Result<Check, SettingsProblem> {
        let VerifierSettings { scheme, secrets, tolerance, .. } = settings;
        let needed = |setting| SettingsProblem::SettingMissing { scheme: *scheme, setting };
        let signing_key = settings.signing_key.as_ref();
        Ok(match scheme {
            Scheme::StandardWebhooks | Scheme::Svix => {
                let families = match scheme {
                    Scheme::Svix => [SVIX, STANDARD],
                    _ => [STANDARD, SVIX],
                };
                Check::Standard(StandardCheck::new(families, secrets, *tolerance, signing_key)?)
            }
            Scheme::Hubspot => {
                let version = settings.hubspot_version;
                Check::Hubspot(HubspotCheck::new(version, secrets, *tolerance, url)?)
            }
            Scheme::Twilio => Check::Twilio(TwilioCheck::new(secrets, url)?),
            Scheme::Sendgrid => Check::Sendgrid(SendgridCheck::new(secrets, *tolerance, signing_key)?),
            Scheme::Mailgun => Check::Mailgun(MailgunCheck::new(secrets, *tolerance)?),
            Scheme::GoogleAds => Check::Google(GoogleCheck::new(secrets)?),
            Scheme::MicrosoftGraph => Check::Graph(GraphCheck::new(secrets)?),
            Scheme::Basic | Scheme::Pipedrive | Scheme::Postmark => {
                Check::Shared(SharedCheck::basic(settings.user_name.as_deref(), secrets)?)
            }
            Scheme::Bearer => Check::Shared(SharedCheck::bearer(secrets)?),
            Scheme::Token => {
                let location = settings.token.as_ref().ok_or_else(|| needed("token"))?;
                Check::Shared(SharedCheck::token(location, secrets)?)
            }
            Scheme::Hmac => {
                let hmac = settings.hmac.as_ref().ok_or_else(|| needed("hmac"))?;
                let tolerance = tolerance.or(hmac.timestamp.as_ref().map(|_| HMAC_TOLERANCE));
                Check::Hmac(HmacCheck::new(hmac, secrets, tolerance, url)?)
            }
            Scheme::None => Check::None,
            Scheme::Stripe
            | Scheme::Shopify
            | Scheme::Github
            | Scheme::Meta
            | Scheme::Typeform
            | Scheme::Calendly
            | Scheme::Slack
            | Scheme::Mailchimp
            | Scheme::Intercom
            | Scheme::Zendesk
            | Scheme::Woocommerce
            | Scheme::Square
            | Scheme::Paddle
            | Scheme::Webflow
            | Scheme::Linkedin
            | Scheme::Zoom
            | Scheme::Tiktok => {
                let preset = hmac_presets::hmac_preset(*scheme).expect("these schemes have a row");
                let tolerance = tolerance.or(preset.tolerance);
                Check::Hmac(HmacCheck::new(&preset.hmac, secrets, tolerance, url)?)
            }
        })
    }
}

fn check_secrets(scheme: Scheme, secrets: &[Secret]) -> Result<(), SettingsProblem> {
    if scheme != Scheme::None && secrets.is_empty() {
        return Err(SettingsProblem::NoSecret(scheme));
    }
    match secrets.iter().find(|secret| secret.value.expose().is_empty()) {
        Some(secret) => Err(SettingsProblem::EmptySecret(secret.name.clone())),
        None => Ok(()),
    }
}

/// Rejects settings without effect. The public URL is always allowed: it belongs to the source, whatever its scheme.
fn check_unused(settings: &VerifierSettings) -> Result<(), SettingsProblem> {
    let scheme = settings.scheme;
    let basic = matches!(scheme, Scheme::Basic | Scheme::Pipedrive | Scheme::Postmark);
    let asymmetric = matches!(scheme, Scheme::StandardWebhooks | Scheme::Svix | Scheme::Sendgrid);
    let untimed =
        matches!(scheme, Scheme::Twilio | Scheme::GoogleAds | Scheme::MicrosoftGraph | Scheme::Bearer | Scheme::Token);
    let version = settings.hubspot_version != HubspotVersion::Auto;
    let unused = [
        ("secrets", !settings.secrets.is_empty() && scheme == Scheme::None),
        ("tolerance", settings.tolerance.is_some() && (basic || untimed || scheme == Scheme::None)),
        ("version", version && scheme != Scheme::Hubspot),
        ("hmac", settings.hmac.is_some() && scheme != Scheme::Hmac),
        ("token", settings.token.is_some() && scheme != Scheme::Token),
        ("user name", settings.user_name.is_some() && !basic),
        ("verify token", settings.verify_token.is_some() && scheme != Scheme::Meta),
        ("signing key", settings.signing_key.is_some() && !asymmetric),
    ];
    match unused.iter().find(|(_, wrong)| *wrong) {
        Some((setting, _)) => Err(SettingsProblem::SettingUnused { scheme, setting }),
        None => Ok(()),
    }
}

/// Facts about a request that passed verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified<'v> {
    /// Name of the matching secret; `None` for the scheme `none`.
    pub secret: Option<&'v str>,
    /// Signing time, if the scheme has one.
    pub timestamp: Option<Timestamp>,
    /// One-time token that the caller must reject when it recurs within the tolerance: the signature covers the token, but
    /// not the event. Only Mailgun has one.
    pub replay_token: Option<String>,
    /// Headers that the signature covers, each with the value that was verified. Names are in lower case.
    pub signed_headers: Vec<(&'v str, String)>,
    /// Headers of the scheme that this verification did not use, such as those of another header family. They prove nothing.
    pub unused_headers: Vec<&'v str>,
}

impl<'v> Verified<'v> {
    pub(super) fn signed_by(secret: &'v str, timestamp: Option<Timestamp>) -> Verified<'v> {
        Verified { secret: Some(secret), timestamp, ..Verified::unsigned() }
    }

    fn unsigned() -> Verified<'v> {
        Verified { secret: None, timestamp: None, replay_token: None, signed_headers: vec![], unused_headers: vec![] }
    }
}

/// A header and its verified value; `None` if the value is not text.
pub(super) fn signed_header<'v>(name: &'v str, value: &[u8]) -> Option<(&'v str, String)> {
    std::str::from_utf8(value).ok().map(|value| (name, value.to_owned()))
}

/// Verifies the origin of a request from its raw bytes, at time `now`.
pub fn verify<'v>(verifier: &'v Verifier, request: &Request<'_>, now: Timestamp) -> Result<Verified<'v>, VerifyError> {
    match &verifier.check {
        Check::Hmac(check) => check.verify(request, now),
        Check::Standard(check) => check.verify(request, now),
        Check::Hubspot(check) => check.verify(request, now),
        Check::Twilio(check) => check.verify(request, now),
        Check::Sendgrid(check) => check.verify(request, now),
        Check::Mailgun(check) => check.verify(request, now),
        Check::Google(check) => check.verify(request, now),
        Check::Graph(check) => check.verify(request, now),
        Check::Shared(check) => check.verify(request, now),
        Check::None => Ok(Verified::unsigned()),
    }
}
