//! Verification schemes, by their names in the configuration.

use std::fmt;
use std::str::FromStr;

macro_rules! schemes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// How a sender proves the origin of a request. Closed: a sender that is not listed uses one of the general schemes at
        /// the end.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Scheme {
            $($(#[$doc])* $variant,)+
        }

        impl Scheme {
            pub const ALL: &'static [Scheme] = &[$(Scheme::$variant,)+];

            /// As written in the configuration.
            pub fn name(self) -> &'static str {
                match self {
                    $(Scheme::$variant => $name,)+
                }
            }
        }
    };
}

schemes! {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    StandardWebhooks = "standard-webhooks",
    /// Svix: Standard Webhooks with other header names.
    Svix = "svix",
    Stripe = "stripe",
    /// Shopify, in both of its header families.
    Shopify = "shopify",
    Github = "github",
    /// Meta (Facebook) lead ads.
    Meta = "meta",
    Typeform = "typeform",
    /// HubSpot, in the version of [`VerifierSettings::hubspot_version`](super::VerifierSettings).
    Hubspot = "hubspot",
    Calendly = "calendly",
    /// Slack events, commands and interactions.
    Slack = "slack",
    /// Twilio, form and JSON.
    Twilio = "twilio",
    /// SendGrid event webhook, signed with ECDSA.
    Sendgrid = "sendgrid",
    /// Mailchimp audience webhooks.
    Mailchimp = "mailchimp",
    Intercom = "intercom",
    Zendesk = "zendesk",
    Woocommerce = "woocommerce",
    Square = "square",
    /// Paddle Billing.
    Paddle = "paddle",
    /// Webflow hooks that were created by an app or through the API.
    Webflow = "webflow",
    /// LinkedIn lead notifications.
    Linkedin = "linkedin",
    Zoom = "zoom",
    /// TikTok for developers.
    Tiktok = "tiktok",
    /// Mailgun: the signature is in the body, over a timestamp and a token only.
    Mailgun = "mailgun",
    /// Google Ads lead forms: a shared key in the body.
    GoogleAds = "google-ads",
    /// Pipedrive: HTTP Basic.
    Pipedrive = "pipedrive",
    /// Postmark: HTTP Basic.
    Postmark = "postmark",
    /// Microsoft Graph: `clientState` in each notification.
    MicrosoftGraph = "microsoft-graph",
    /// Any HMAC, as described by [`VerifierSettings::hmac`](super::VerifierSettings).
    Hmac = "hmac",
    /// `Authorization: Bearer …`.
    Bearer = "bearer",
    /// A token in a header or a query parameter, as described by [`VerifierSettings::token`](super::VerifierSettings).
    Token = "token",
    Basic = "basic",
    /// Accepts every request.
    None = "none",
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scheme {
    type Err = UnknownScheme;

    fn from_str(name: &str) -> Result<Scheme, UnknownScheme> {
        Scheme::ALL.iter().copied().find(|scheme| scheme.name() == name).ok_or(UnknownScheme)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown verification scheme")]
pub struct UnknownScheme;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_names_round_trip() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.name().parse(), Ok(*scheme));
        }
        assert_eq!("Stripe".parse::<Scheme>(), Err(UnknownScheme));
        assert_eq!("".parse::<Scheme>(), Err(UnknownScheme));
    }
}
