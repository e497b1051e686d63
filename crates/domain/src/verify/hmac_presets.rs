//! Senders that use plain HMAC, one row each.

use std::time::Duration;

use super::digest::{Algorithm, Encoding};
use super::freshness::TimestampUnit;
use super::hmac_settings::{
    Assign, HmacSettings, Layout, SecretEncoding, Separator, SignatureHeader, TimestampSettings, TimestampSource,
};
use super::scheme::Scheme;

type Row = HmacSettings<&'static str>;

/// HMAC settings of a sender, and its default tolerance.
pub(super) struct HmacPreset {
    pub(super) hmac: Row,
    pub(super) tolerance: Option<Duration>,
}

/// HMAC-SHA256 over the body, in hexadecimal. Each row lists its differences.
const PLAIN: Row = HmacSettings {
    header: SignatureHeader::One(""),
    algorithm: Algorithm::Sha256,
    encoding: Encoding::Hex,
    secret_encoding: SecretEncoding::Text,
    secret_prefix: None,
    prefix: None,
    layout: Layout::Whole,
    signed: "{body}",
    timestamp: None,
    id_header: None,
};

const fn one(header: &'static str) -> SignatureHeader<&'static str> {
    SignatureHeader::One(header)
}

/// `t=…,v1=…`, with any key and separator.
const fn list(separator: Separator, signature_key: &'static str) -> Layout<&'static str> {
    Layout::List { separator, assign: Assign::Equals, signature_key }
}

const fn field(key: &'static str) -> Option<TimestampSettings<&'static str>> {
    let source = TimestampSource::Field(key);
    Some(TimestampSettings { source, unit: TimestampUnit::Seconds })
}

const fn header(name: &'static str, unit: TimestampUnit) -> Option<TimestampSettings<&'static str>> {
    Some(TimestampSettings { source: TimestampSource::Header(name), unit })
}

/// HMAC settings of the sender that uses this scheme; `None` for other kinds of schemes.
#[rustfmt::skip]
pub(super) fn hmac_preset(scheme: Scheme) -> Option<HmacPreset> {
    use Separator::{Comma, Semicolon};
    use TimestampUnit::{Iso8601, Milliseconds, Seconds};

    let (hmac, tolerance_seconds) = match scheme {
        Scheme::Stripe => (Row { header: one("stripe-signature"), layout: list(Comma, "v1"),
            signed: "{timestamp}.{body}", timestamp: field("t"), ..PLAIN }, Some(300)),
        Scheme::Github | Scheme::Meta => (Row { header: one("x-hub-signature-256"),
            prefix: Some("sha256="), ..PLAIN }, None),
        // If both are present, the newer header decides.
        Scheme::Shopify => (Row {
            header: SignatureHeader::FirstOf("shopify-hmac-sha256", "x-shopify-hmac-sha256"),
            encoding: Encoding::Base64, ..PLAIN }, None),
        Scheme::Typeform => (Row { header: one("typeform-signature"), prefix: Some("sha256="),
            encoding: Encoding::Base64, ..PLAIN }, None),
        Scheme::Calendly => (Row { header: one("calendly-webhook-signature"),
            layout: list(Comma, "v1"), signed: "{timestamp}.{body}", timestamp: field("t"),
            ..PLAIN }, Some(180)),
        Scheme::Slack => (Row { header: one("x-slack-signature"), prefix: Some("v0="),
            signed: "v0:{timestamp}:{body}",
            timestamp: header("x-slack-request-timestamp", Seconds), ..PLAIN }, Some(300)),
        Scheme::Mailchimp => (Row { header: one("x-mailchimp-signature"),
            layout: list(Comma, "v1"), signed: "{timestamp}.{body}", timestamp: field("t"),
            ..PLAIN }, Some(300)),
        Scheme::Intercom => (Row { header: one("x-hub-signature"), prefix: Some("sha1="),
            algorithm: Algorithm::Sha1, ..PLAIN }, None),
        // Zendesk publishes no tolerance; the timestamp is signed and parsed, but not compared with now.
        Scheme::Zendesk => (Row { header: one("x-zendesk-webhook-signature"),
            encoding: Encoding::Base64, signed: "{timestamp}{body}",
            timestamp: header("x-zendesk-webhook-signature-timestamp", Iso8601), ..PLAIN }, None),
        // WordPress stores the secret HTML-escaped and unescapes it before signing.
        Scheme::Woocommerce => (Row { header: one("x-wc-webhook-signature"),
            encoding: Encoding::Base64, secret_encoding: SecretEncoding::HtmlText,
            ..PLAIN }, None),
        Scheme::Square => (Row { header: one("x-square-hmacsha256-signature"),
            encoding: Encoding::Base64, signed: "{url}{body}", ..PLAIN }, None),
        Scheme::Paddle => (Row { header: one("paddle-signature"), layout: list(Semicolon, "h1"),
            signed: "{timestamp}:{body}", timestamp: field("ts"), ..PLAIN }, Some(5)),
        Scheme::Webflow => (Row { header: one("x-webflow-signature"),
            signed: "{timestamp}:{body}",
            timestamp: header("x-webflow-timestamp", Milliseconds), ..PLAIN }, Some(300)),
        // The literal is part of the signed string only.
        Scheme::Linkedin => (Row { header: one("x-li-signature"), signed: "hmacsha256={body}",
            ..PLAIN }, None),
        Scheme::Zoom => (Row { header: one("x-zm-signature"), prefix: Some("v0="),
            signed: "v0:{timestamp}:{body}",
            timestamp: header("x-zm-request-timestamp", Seconds), ..PLAIN }, Some(300)),
        // TikTok publishes no tolerance; the usual one stops replays.
        Scheme::Tiktok => (Row { header: one("tiktok-signature"), layout: list(Comma, "s"),
            signed: "{timestamp}.{body}", timestamp: field("t"), ..PLAIN }, Some(300)),
        _ => return None,
    };
    Some(HmacPreset { hmac, tolerance: tolerance_seconds.map(Duration::from_secs) })
}
