//! `verify:` to a [`Verifier`].

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_domain::flow::RateLimit;
use sluice_domain::verify::{
    Algorithm, Assign, Encoding, HmacSettings, HubspotVersion, Layout, Scheme, Secret, SecretEncoding, Separator,
    SettingsProblem, SignatureHeader, TimestampSettings, TimestampSource, TimestampUnit, TokenLocation, Verifier,
    VerifierSettings,
};

use super::diagnostics::Report;
use super::fields::{Fields, Literal, secret_text};
use super::node::{Span, YamlKind, YamlNode};
use super::problem::OPEN_TO_EVERYBODY;
use super::rule::{at_least_one, at_most_one};
use super::table::{SectionSpec, ValueType, key};
use super::trigger::read_rate_limit;

pub(super) static VERIFY: SectionSpec = SectionSpec {
    title: "a verification",
    about: "Verification of the sender. `verify: none` accepts every caller; without `verify:` only callers on loopback are accepted. The settings from `header` on describe a custom sender.",
    keys: &[
        key("scheme", ValueType::Described("the name of a scheme"), "Verification scheme; see the list below.")
            .required(),
        key("secret", ValueType::Secret, "Secret, or public key of an asymmetric scheme."),
        key(
            "secrets",
            ValueType::Described("a list of secrets, or of maps with value, name, not_after and rate_limit"),
            "Several secrets, for rotation or one per token holder; each is accepted.",
        ),
        key("tolerance", ValueType::Duration, "Maximum difference between the signing time and now.")
            .or("the tolerance of the sender's scheme"),
        key("public_url", ValueType::Text, "Public URL of the endpoint, for schemes that sign it."),
        key("version", ValueType::OneOf(&["auto", "v1", "v2", "v3"]), "Version of HubSpot's signature.").or("auto"),
        key("user", ValueType::Text, "User name for HTTP Basic, if the secret is only a password."),
        key("verify_token", ValueType::Secret, "For meta: token of the subscription handshake."),
        key("signing_key", ValueType::Secret, "Private key of an asymmetric scheme; only signs test requests."),
        key(
            "header",
            ValueType::Described("a header's name, or a list of two of which the first that is there counts"),
            "For hmac and token: header of the signature or token.",
        ),
        key("query", ValueType::Text, "For token: query parameter of the token."),
        key("algorithm", ValueType::OneOf(&["sha1", "sha256", "sha512"]), "For hmac: hash algorithm.").or("sha256"),
        key("encoding", ValueType::OneOf(&["hex", "base64", "base64url"]), "For hmac: encoding of the digest.")
            .or("hex"),
        key("prefix", ValueType::Text, "For hmac: prefix of the signature, such as sha256=."),
        key(
            "signed",
            ValueType::Described("text with {body}, {timestamp}, {id}, {url}, {path} and {method}, in quotes"),
            "For hmac: signed text.",
        )
        .or("\"{body}\""),
        key(
            "secret_encoding",
            ValueType::OneOf(&["text", "base64", "hex"]),
            "For hmac: derivation of the key from the secret.",
        )
        .or("text"),
        key("secret_prefix", ValueType::Text, "For hmac: prefix to remove from the secret, such as whsec_."),
        key("timestamp", ValueType::Table("a time of signing"), "For hmac: location of the signing time."),
        key("id_header", ValueType::Header, "For hmac: header of the signed event id."),
        key(
            "list",
            ValueType::Table("a signature list"),
            "For hmac: format of a header with fields such as t=1,v1=abc.",
        ),
    ],
    later: &[],
    rules: &[at_most_one(
        &["secret", "secrets"],
        "`secret` and `secrets` are synonyms",
        "put every secret into `secrets`",
    )],
};

pub(super) static SECRET: SectionSpec = SectionSpec {
    title: "one of several secrets",
    about: "Secret with a name and an expiry.",
    keys: &[
        key("value", ValueType::Secret, "Secret.").required(),
        key("name", ValueType::Name, "Name in messages.").or("the name of the secret"),
        key("not_after", ValueType::Described("a time such as 2026-12-31T00:00:00Z"), "Expiry of the secret."),
        key(
            "rate_limit",
            ValueType::Described("a rate such as 100/s, or a map with rate and burst"),
            "Rate limit of this secret, in addition to the limit of the source.",
        )
        .or("no limit"),
    ],
    later: &[],
    rules: &[],
};

const ONE_PLACE: &str = "the signing time needs exactly one of `header`, `field` and `body`";

pub(super) static TIMESTAMP: SectionSpec = SectionSpec {
    title: "a time of signing",
    about: "Location of the signing time: one of `header`, `field` and `body`.",
    keys: &[
        key("header", ValueType::Header, "Header of the signing time."),
        key("field", ValueType::Text, "Field of the signature list."),
        key("body", ValueType::Text, "Path into the JSON body."),
        key(
            "unit",
            ValueType::OneOf(&["seconds", "milliseconds", "iso8601", "http-date"]),
            "Format of the signing time.",
        )
        .or("seconds"),
    ],
    later: &[],
    rules: &[
        at_most_one(&["header", "field", "body"], ONE_PLACE, "").coded("bad-verification"),
        at_least_one(&["header", "field", "body"], ONE_PLACE, "such as: header: X-Timestamp").coded("bad-verification"),
    ],
};

pub(super) static LIST: SectionSpec = SectionSpec {
    title: "a signature list",
    about: "Format of the fields of the signature header.",
    keys: &[
        key("signature_key", ValueType::Text, "Key of the signatures, such as v1.").required(),
        key("separator", ValueType::OneOf(&["comma", "semicolon", "space"]), "Separator between fields.").or("comma"),
        key("assign", ValueType::OneOf(&["equals", "comma"]), "Separator between a key and its value.").or("equals"),
    ],
    later: &[],
    rules: &[],
};

/// Rate limits by secret name.
pub(super) type SecretLimits = BTreeMap<String, RateLimit>;

/// `None` if the section has errors.
pub(super) fn read(report: Report<'_>, node: &YamlNode, limits: &mut SecretLimits) -> Option<Verifier> {
    if node.text() == Some("none") {
        open_to_everybody(report, node.span);
        return Verifier::new(VerifierSettings::new(Scheme::None, vec![])).ok();
    }
    if let Some(name) = node.text() {
        let scheme = scheme(report, node.span, name)?;
        report
            .error(node.span, "bad-verification", format!("the scheme {scheme} needs a secret"))
            .hint(format!("write verify: {{scheme: {scheme}, secret: \"${{secrets.NAME}}\"}}"));
        return None;
    }
    let fields = Fields::open(report, node, &[&VERIFY])?;
    let scheme = fields
        .text("scheme")
        .map(|name| scheme(report, fields.node("scheme").map_or(node.span, |node| node.span), name));
    let (secrets, complete) = read_secrets(&fields, limits);
    let scheme = scheme??;
    if scheme == Scheme::None {
        open_to_everybody(report, fields.node("scheme").map_or(node.span, |node| node.span));
    }
    let mut settings = VerifierSettings::new(scheme, secrets);
    settings.tolerance = fields.duration("tolerance");
    settings.public_url = fields.text("public_url").map(str::to_owned);
    settings.user_name = fields.text("user").map(str::to_owned);
    settings.verify_token = fields.secret("verify_token");
    settings.signing_key = fields.secret("signing_key");
    settings.hubspot_version = match fields.one_of("version") {
        Some("v1") => HubspotVersion::V1,
        Some("v2") => HubspotVersion::V2,
        Some("v3") => HubspotVersion::V3,
        _ => HubspotVersion::Auto,
    };
    match scheme {
        Scheme::Hmac => settings.hmac = Some(read_hmac(&fields)?),
        Scheme::Token => settings.token = Some(read_token(&fields)?),
        _ => refuse_own_settings(&fields, scheme),
    }
    if !complete {
        return None;
    }
    match Verifier::new(settings) {
        Ok(verifier) => Some(verifier),
        Err(problem) => {
            let reported = report.error(fields.key_span("scheme"), "bad-verification", problem.to_string());
            if matches!(problem, SettingsProblem::NoSecret(_)) {
                reported.hint("add `secret: ${secrets.NAME}`");
            }
            None
        }
    }
}

/// Explicit, so not an error; but every check warns of it.
fn open_to_everybody(report: Report<'_>, span: Span) {
    report
        .warning(span, OPEN_TO_EVERYBODY, "this flow accepts every caller")
        .hint("set a scheme and a secret, unless a proxy authenticates callers");
}

fn scheme(report: Report<'_>, span: Span, name: &str) -> Option<Scheme> {
    let found = name.parse().ok();
    if found.is_none() {
        let names = Scheme::ALL.iter().map(|scheme| scheme.name());
        let otherwise = "describe it with `scheme: hmac`, `bearer`, `token` or `basic`";
        report
            .error(span, "unknown-scheme", format!("unknown verification scheme `{name}`"))
            .meant(name, names, otherwise);
    }
    found
}

/// Secrets, and whether all could be read.
fn read_secrets(fields: &Fields<'_, '_>, limits: &mut SecretLimits) -> (Vec<Secret>, bool) {
    let report = fields.report;
    let mut secrets = vec![];
    let mut complete = true;
    let mut take = |secret: Option<Secret>| match secret {
        Some(secret) => secrets.push(secret),
        None => complete = false,
    };
    if let Some(node) = fields.node("secret") {
        take(read_secret(report, node, limits));
    }
    if let Some(node) = fields.node("secrets") {
        match &node.kind {
            YamlKind::List(items) => items.iter().for_each(|item| take(read_secret(report, item, limits))),
            _ => take(read_secret(report, node, limits)),
        }
    }
    (secrets, complete)
}

fn read_secret(report: Report<'_>, node: &YamlNode, limits: &mut SecretLimits) -> Option<Secret> {
    if node.entries().is_none() {
        let value = secret_text(report, node, "secret", Literal::Refused)?;
        return Some(Secret::new(secret_name(node), value));
    }
    let fields = Fields::open(report, node, &[&SECRET])?;
    let value = fields.secret("value");
    let not_after = match fields.text("not_after") {
        Some(text) => match text.parse::<Timestamp>() {
            Ok(at) => Some(at),
            Err(_) => {
                let span = fields.node("not_after").map_or(fields.span, |node| node.span);
                report.error(span, "bad-value", format!("`{text}` is not a time")).hint("write 2026-12-31T00:00:00Z");
                return None;
            }
        },
        None => None,
    };
    let name = fields.name("name").map(|(name, _)| name.to_owned());
    let name = name.or_else(|| fields.node("value").map(secret_name)).unwrap_or_default();
    if let Some(limit) = fields.node("rate_limit").and_then(|node| read_rate_limit(&fields, node)) {
        limits.insert(name.clone(), limit);
    }
    Some(Secret { not_after, ..Secret::new(name, value?) })
}

/// The name in `${secrets.NAME}`, for messages.
fn secret_name(node: &YamlNode) -> String {
    let text = node.text().unwrap_or_default();
    let inside = text.split("${secrets.").nth(1).and_then(|rest| rest.split('}').next());
    inside.unwrap_or("secret").to_owned()
}

fn read_token(fields: &Fields<'_, '_>) -> Option<TokenLocation> {
    refuse_own_settings(fields, Scheme::Token);
    match (fields.node("header"), fields.text("query")) {
        (Some(_), None) => fields.text("header").map(|name| TokenLocation::Header(name.to_owned())),
        (None, Some(name)) => Some(TokenLocation::Query(name.to_owned())),
        _ => {
            fields
                .report
                .error(
                    fields.key_span("scheme"),
                    "bad-verification",
                    "the scheme token needs `header` or `query`, and only one of them",
                )
                .hint("set the location of the token");
            None
        }
    }
}

fn read_hmac(fields: &Fields<'_, '_>) -> Option<HmacSettings> {
    refuse_own_settings(fields, Scheme::Hmac);
    let report = fields.report;
    let Some(header) = fields.node("header") else {
        report
            .error(
                fields.key_span("scheme"),
                "bad-verification",
                "the scheme hmac needs `header`, the header of the signature",
            )
            .hint("such as: header: X-Signature");
        return None;
    };
    let header = match (header.text(), header.items()) {
        (Some(name), _) => SignatureHeader::One(name.to_owned()),
        (None, Some([first, second])) if first.text().is_some() && second.text().is_some() => {
            let text = |node: &YamlNode| node.text().unwrap_or_default().to_owned();
            SignatureHeader::FirstOf(text(first), text(second))
        }
        _ => {
            report.error(header.span, "wrong-type", "`header` must be a header's name, or a list of two");
            return None;
        }
    };
    let text = |name| fields.text(name).map(str::to_owned);
    Some(HmacSettings {
        header,
        algorithm: algorithm(fields),
        encoding: encoding(fields),
        secret_encoding: secret_encoding(fields),
        secret_prefix: text("secret_prefix"),
        prefix: text("prefix"),
        layout: fields.node("list").and_then(|node| read_list(report, node)).unwrap_or(Layout::Whole),
        signed: text("signed").unwrap_or_else(|| "{body}".into()),
        timestamp: fields.node("timestamp").and_then(|node| read_timestamp(report, node)),
        id_header: text("id_header"),
    })
}

/// `algorithm:` of a signature.
pub(super) fn algorithm(fields: &Fields<'_, '_>) -> Algorithm {
    match fields.one_of("algorithm") {
        Some("sha1") => Algorithm::Sha1,
        Some("sha512") => Algorithm::Sha512,
        _ => Algorithm::Sha256,
    }
}

/// `encoding:` of a signature.
pub(super) fn encoding(fields: &Fields<'_, '_>) -> Encoding {
    match fields.one_of("encoding") {
        Some("base64") => Encoding::Base64,
        Some("base64url") => Encoding::Base64Url,
        _ => Encoding::Hex,
    }
}

/// `secret_encoding:` of a signature.
pub(super) fn secret_encoding(fields: &Fields<'_, '_>) -> SecretEncoding {
    match fields.one_of("secret_encoding") {
        Some("base64") => SecretEncoding::Base64,
        Some("hex") => SecretEncoding::Hex,
        _ => SecretEncoding::Text,
    }
}

pub(super) fn read_list(report: Report<'_>, node: &YamlNode) -> Option<Layout> {
    let fields = Fields::open(report, node, &[&LIST])?;
    Some(Layout::List {
        separator: match fields.one_of("separator") {
            Some("semicolon") => Separator::Semicolon,
            Some("space") => Separator::Space,
            _ => Separator::Comma,
        },
        assign: match fields.one_of("assign") {
            Some("comma") => Assign::Comma,
            _ => Assign::Equals,
        },
        signature_key: fields.text("signature_key")?.to_owned(),
    })
}

pub(super) fn read_timestamp(report: Report<'_>, node: &YamlNode) -> Option<TimestampSettings> {
    let fields = Fields::open(report, node, &[&TIMESTAMP])?;
    let text = |name| fields.text(name).map(str::to_owned);
    let source = match (text("header"), text("field"), text("body")) {
        (Some(name), None, None) => TimestampSource::Header(name),
        (None, Some(name), None) => TimestampSource::Field(name),
        (None, None, Some(path)) => TimestampSource::Body(path),
        _ => return None,
    };
    let unit = match fields.one_of("unit") {
        Some("milliseconds") => TimestampUnit::Milliseconds,
        Some("iso8601") => TimestampUnit::Iso8601,
        Some("http-date") => TimestampUnit::HttpDate,
        _ => TimestampUnit::Seconds,
    };
    Some(TimestampSettings { source, unit })
}

/// Settings of custom senders, and the schemes that support them.
pub(super) const OWN_SETTINGS: [(&str, &[Scheme]); 11] = [
    ("header", &[Scheme::Hmac, Scheme::Token]),
    ("query", &[Scheme::Token]),
    ("algorithm", &[Scheme::Hmac]),
    ("encoding", &[Scheme::Hmac]),
    ("prefix", &[Scheme::Hmac]),
    ("signed", &[Scheme::Hmac]),
    ("secret_encoding", &[Scheme::Hmac]),
    ("secret_prefix", &[Scheme::Hmac]),
    ("timestamp", &[Scheme::Hmac]),
    ("id_header", &[Scheme::Hmac]),
    ("list", &[Scheme::Hmac]),
];

fn refuse_own_settings(fields: &Fields<'_, '_>, scheme: Scheme) {
    for (key, _) in OWN_SETTINGS.iter().filter(|(_, schemes)| !schemes.contains(&scheme)) {
        if fields.node(key).is_some() {
            fields.report.error(
                fields.key_span(key),
                "bad-verification",
                format!("the scheme {scheme} does not support `{key}`"),
            );
        }
    }
}
