//! Credentials, signatures and connections of an http destination.

use sluice_domain::destination::{ClientCredentialsIn, HttpAuth, HttpChannel, HttpOAuth, HttpProxy};
use sluice_domain::verify::{
    HmacSettings, Layout, Scheme, Secret, SecretValue, SignatureHeader, Verifier, VerifierSettings,
};

use super::destination::{read_revealed, read_url};
use super::fields::{Fields, Literal, secret_text};
use super::node::YamlNode;
use super::rule::{at_least_one, at_most_one};
use super::table::{SectionSpec, ValueType, key};
use super::verify::{algorithm, encoding, read_list, read_timestamp, secret_encoding};

/// The URL of each request is signed, so this one never is.
const ANY_URL: &str = "https://destination.invalid/";

pub(super) static HTTP_AUTH: SectionSpec = SectionSpec {
    title: "http credentials",
    about: "Set exactly one key.",
    keys: &[
        key("bearer", ValueType::Secret, "Sent as `Authorization: Bearer …`."),
        key("basic", ValueType::Table("basic credentials"), "Sent as `Authorization: Basic …`."),
        key(
            "oauth",
            ValueType::Table("an oauth client"),
            "Access token of the OAuth client credentials flow; renewed a minute before it expires, and once after a 401.",
        ),
        key("hmac", ValueType::Table("an hmac signature"), "A signature over parts of every request, in a header."),
    ],
    later: &[],
    rules: &[
        at_most_one(&HTTP_AUTHS, "`auth` must have `{first}` or `{second}`, not both", "remove one of them"),
        at_least_one(
            &HTTP_AUTHS,
            "`auth` needs `bearer`, `basic`, `oauth` or `hmac`",
            "such as: bearer: ${secrets.NAME}",
        ),
    ],
};

const HTTP_AUTHS: [&str; 4] = ["bearer", "basic", "oauth", "hmac"];

pub(super) static OAUTH_CLIENT: SectionSpec = SectionSpec {
    title: "an oauth client",
    about: "OAuth 2 client credentials. The token request goes through the proxy of the destination, with its client certificate.",
    keys: &[
        key("token_url", ValueType::Url, "Address of the token endpoint.").required(),
        key("client_id", ValueType::Plain, "Id of the client.").required(),
        key("client_secret", ValueType::Secret, "Secret of the client.").required(),
        key("scope", ValueType::Text, "Scopes, separated by spaces."),
        key("audience", ValueType::Text, "The API that the token is for, where the provider wants it."),
        key(
            "credentials_in",
            ValueType::OneOf(&ClientCredentialsIn::NAMES),
            "Where the token request has id and secret: fields of the form, or the header Authorization (HTTP Basic).",
        )
        .or("body"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static HMAC_SIGNATURE: SectionSpec = SectionSpec {
    title: "an hmac signature",
    about: "A signature in a header of every request. The keys mean the same as under `verify:`, so that a receiver which is a Sluice copies them.",
    keys: &[
        key("secret", ValueType::Secret, "The shared secret.").required(),
        key("header", ValueType::Header, "Header of the signature.").required(),
        key(
            "signed",
            ValueType::Described("text with {body}, {timestamp}, {id}, {url}, {path} and {method}, in quotes"),
            "Signed text. {id} is the effect key, {url} the whole URL and {path} its path and query.",
        )
        .or("\"{body}\""),
        key("algorithm", ValueType::OneOf(&["sha1", "sha256", "sha512"]), "Hash algorithm.").or("sha256"),
        key("encoding", ValueType::OneOf(&["hex", "base64", "base64url"]), "Encoding of the digest.").or("hex"),
        key("prefix", ValueType::Text, "Text before the signature, such as sha256=."),
        key("secret_encoding", ValueType::OneOf(&["text", "base64", "hex"]), "Derivation of the key from the secret.")
            .or("text"),
        key("timestamp", ValueType::Table("a time of signing"), "Where the signing time is sent; for {timestamp}."),
        key("id_header", ValueType::Header, "Header of the effect key; for {id}."),
        key("list", ValueType::Table("a signature list"), "Format of a header with fields such as t=1,v1=abc."),
    ],
    later: &[],
    rules: &[],
};

pub(super) static BASIC: SectionSpec = SectionSpec {
    title: "basic credentials",
    about: "A user name and a password.",
    keys: &[
        key("user", ValueType::Plain, "The user name.").required(),
        key("password", ValueType::Secret, "The password.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) fn read(destination: &Fields<'_, '_>, node: &YamlNode) -> Option<HttpAuth> {
    let report = destination.report;
    let fields = Fields::open(report, node, &[&HTTP_AUTH])?;
    if fields.node("bearer").is_some() {
        return fields.secret("bearer").map(HttpAuth::Bearer);
    }
    if let Some(node) = fields.node("basic") {
        let (user, password) = read_basic(&fields, node)?;
        return Some(HttpAuth::Basic { user, password });
    }
    if let Some(node) = fields.node("oauth") {
        return read_oauth(&Fields::open(report, node, &[&OAUTH_CLIENT])?);
    }
    read_hmac(&Fields::open(report, fields.node("hmac")?, &[&HMAC_SIGNATURE])?)
}

fn read_basic(fields: &Fields<'_, '_>, node: &YamlNode) -> Option<(String, SecretValue)> {
    let fields = Fields::open(fields.report, node, &[&BASIC])?;
    let (user, password) = (read_revealed(&fields, "user"), fields.secret("password"));
    Some((user?, password?))
}

fn read_oauth(fields: &Fields<'_, '_>) -> Option<HttpAuth> {
    let (token_url, client_id) = (read_url(fields, "token_url"), read_revealed(fields, "client_id"));
    let client_secret = fields.secret("client_secret");
    let text = |name| fields.text(name).map(str::to_owned);
    Some(HttpAuth::OAuth(Box::new(HttpOAuth {
        scope: text("scope"),
        audience: text("audience"),
        credentials_in: fields.one_of("credentials_in").and_then(ClientCredentialsIn::parse).unwrap_or_default(),
        token_url: token_url?,
        client_id: client_id?,
        client_secret: client_secret?,
    })))
}

fn read_hmac(fields: &Fields<'_, '_>) -> Option<HttpAuth> {
    let report = fields.report;
    let secret = fields.secret("secret");
    let text = |name| fields.text(name).map(str::to_owned);
    let hmac = HmacSettings {
        header: SignatureHeader::One(text("header")?),
        algorithm: algorithm(fields),
        encoding: encoding(fields),
        secret_encoding: secret_encoding(fields),
        prefix: text("prefix"),
        layout: fields.node("list").and_then(|node| read_list(report, node)).unwrap_or(Layout::Whole),
        signed: text("signed").unwrap_or_else(|| "{body}".into()),
        timestamp: fields.node("timestamp").and_then(|node| read_timestamp(report, node)),
        id_header: text("id_header"),
        secret_prefix: None,
    };
    let mut settings = VerifierSettings::new(Scheme::Hmac, vec![Secret::new("secret", secret?)]);
    settings.public_url = Some(ANY_URL.to_owned());
    settings.hmac = Some(hmac);
    match Verifier::new(settings) {
        Ok(signer) => Some(HttpAuth::Hmac(Box::new(signer))),
        Err(problem) => {
            report.error(fields.span, "bad-value", format!("requests cannot be signed like this: {problem}"));
            None
        }
    }
}

/// Signer of Standard Webhooks, by one secret or by several during a rotation.
pub(super) fn read_signer(fields: &Fields<'_, '_>) -> Option<Box<Verifier>> {
    let (name, node) = match (fields.node("signing_secret"), fields.node("signing_secrets")) {
        (Some(node), _) => ("signing_secret", node),
        (None, node) => ("signing_secrets", node?),
    };
    let items = node.items().unwrap_or(std::slice::from_ref(node));
    let mut secrets = vec![];
    for item in items {
        secrets.push(Secret::new(name, secret_text(fields.report, item, name, Literal::Refused)?));
    }
    match Verifier::new(VerifierSettings::new(Scheme::StandardWebhooks, secrets)) {
        Ok(verifier) => Some(Box::new(verifier)),
        Err(problem) => {
            fields
                .report
                .error(node.span, "bad-value", format!("`{name}` cannot sign: {problem}"))
                .hint("a secret of Standard Webhooks is `whsec_` and the base64 of 24 to 64 bytes");
            None
        }
    }
}

pub(super) fn read_channel(fields: &Fields<'_, '_>) -> HttpChannel {
    let pem = |name| fields.node(name).and_then(|node| secret_text(fields.report, node, name, Literal::Accepted));
    let certificate = pem("client_certificate");
    let key = fields.node("client_key").and_then(|_| fields.secret("client_key"));
    HttpChannel {
        ca_certificate: pem("ca_certificate"),
        client_certificate: certificate.zip(key),
        proxy: read_proxy(fields),
    }
}

fn read_proxy(fields: &Fields<'_, '_>) -> Option<HttpProxy> {
    let node = fields.node("proxy")?;
    let url = read_url(fields, "proxy")?;
    let host = url.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest));
    if host.is_none_or(|host| host.contains(['/', '?', '#'])) {
        fields
            .report
            .error(node.span, "bad-value", "`proxy` must be http://, a host and a port")
            .hint("such as: proxy: http://proxy.example:3128");
        return None;
    }
    let login = fields.node("proxy_auth").and_then(|node| read_basic(fields, node));
    Some(HttpProxy { url, login })
}
