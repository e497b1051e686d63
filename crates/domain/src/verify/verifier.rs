//! From settings to a verifier, and the one `match` over the schemes.

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
use super::shared_secret::{SharedCheck, TokenPlace};
use super::standard::{STANDARD, SVIX, StandardCheck};
use super::twilio::TwilioCheck;
use super::url::PublicUrl;

/// The window of a general HMAC that signs a time; what most senders recommend.
const HMAC_TOLERANCE: Duration = Duration::from_secs(300);

/// What a configuration says about a verifier, before it is known to make sense.
#[derive(Clone, Debug)]
pub struct VerifierSettings {
    /// The scheme.
    pub scheme: Scheme,
    /// All are tried; the first that is still accepted also signs. Public keys count as secrets.
    pub secrets: Vec<Secret>,
    /// How far from now, on either side, a request may have been signed; the scheme's own window
    /// when left out.
    pub tolerance: Option<Duration>,
    /// The URL that the sender was given. Needed by schemes that sign it.
    pub public_url: Option<String>,
    /// For `hubspot`.
    pub hubspot_version: HubspotVersion,
    /// For `hmac`, and needed there.
    pub hmac: Option<HmacSettings>,
    /// For `token`, and needed there.
    pub token: Option<TokenPlace>,
    /// For `basic`, `pipedrive` and `postmark`: each secret is then a password only.
    pub user_name: Option<String>,
    /// For `meta`: what the subscription handshake has to say.
    pub verify_token: Option<SecretValue>,
    /// For `standard-webhooks`, `svix` and `sendgrid` where the secrets are public keys: the private
    /// key, which is used for signing test requests only.
    pub signing_key: Option<SecretValue>,
}

impl VerifierSettings {
    /// The settings of a scheme that needs no others.
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

/// Settings that make sense, with every key decoded. Cheap to use, meant to be kept.
#[derive(Clone, Debug)]
pub struct Verifier {
    scheme: Scheme,
    pub(super) check: Check,
    pub(super) verify_token: Option<SecretValue>,
}

/// One variant for each way of checking.
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
    /// Checks the settings and decodes the keys.
    pub fn new(settings: VerifierSettings) -> Result<Verifier, SettingsProblem> {
        let scheme = settings.scheme;
        check_secrets(scheme, &settings.secrets)?;
        check_use(&settings)?;
        let url = settings.public_url.as_deref().map(PublicUrl::parse).transpose();
        let url = url.map_err(SettingsProblem::PublicUrl)?;
        let check = Check::new(&settings, url)?;
        Ok(Verifier { scheme, check, verify_token: settings.verify_token })
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The header that holds a token as it is, in lower case: it must not be stored. Schemes that sign have none.
    pub fn credential_header(&self) -> Option<&str> {
        match &self.check {
            Check::Shared(check) => check.place.header(),
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
                let place = settings.token.as_ref().ok_or_else(|| needed("token"))?;
                Check::Shared(SharedCheck::token(place, secrets)?)
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
                let sender = hmac_presets::sender(*scheme).expect("these schemes have a row");
                let tolerance = tolerance.or(sender.tolerance);
                Check::Hmac(HmacCheck::new(&sender.hmac, secrets, tolerance, url)?)
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

/// A setting that has no effect is a mistake that nobody would notice. The public URL is let
/// through: it belongs to the source, whatever its scheme does with it.
fn check_use(settings: &VerifierSettings) -> Result<(), SettingsProblem> {
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

/// What is known about a request that was believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified<'v> {
    /// The name of the secret that it was signed with; `None` for the scheme `none`.
    pub secret: Option<&'v str>,
    /// When it was signed, where the scheme says so.
    pub timestamp: Option<Timestamp>,
    /// A token that must not be seen twice within the window: the signature covers it, but not the
    /// event. Only Mailgun has one.
    pub replay_token: Option<String>,
}

impl<'v> Verified<'v> {
    pub(super) fn by(secret: &'v str, timestamp: Option<Timestamp>) -> Verified<'v> {
        Verified { secret: Some(secret), timestamp, replay_token: None }
    }
}

/// Decides whether a request comes from whom it should, from its raw bytes and the time it is now.
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
        Check::None => Ok(Verified { secret: None, timestamp: None, replay_token: None }),
    }
}
