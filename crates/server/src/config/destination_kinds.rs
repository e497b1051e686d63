//! Destinations other than HTTP and Salesforce: HubSpot, PostgreSQL, SMTP, Slack and scripts.

use std::time::Duration;

use sluice_domain::destination::{
    HubspotAuth, HubspotDestination, PostgresDestination, SlackDestination, SlackTransport, SmtpDestination, SmtpLogin,
    SmtpTls,
};

use super::destination::{read_revealed, read_url};
use super::fields::{Fields, Literal, secret_text};
use super::node::YamlNode;
use super::rule::{at_least_one, at_most_one, needs};
use super::table::{LASTING, SectionSpec, ValueType, key};

const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
const HUBSPOT_URL: &str = "https://api.hubapi.com";
const HUBSPOT_API_VERSION: &str = "v3";
const SLACK_URL: &str = "https://slack.com/api";

pub(super) static HUBSPOT: SectionSpec = SectionSpec {
    title: "a hubspot destination",
    about: "More keys of a destination of `type: hubspot`.",
    keys: &[
        key("auth", ValueType::Table("hubspot credentials"), "Credentials.").required(),
        key("base_url", ValueType::Url, "URL of the API.").or("https://api.hubapi.com"),
        key("api_version", ValueType::Described("v3, or a version such as 2026-03"), "Version of the API.").or("v3"),
        key(
            "batch_max",
            ValueType::Count(1, 100),
            "Maximum number of waiting jobs whose records one call carries. 1: every record has a call of its own.",
        )
        .or("100"),
    ],
    later: &[],
    rules: &[],
};

const HUBSPOT_CREDENTIALS: &str = "set token, or client_id, client_secret and refresh_token";

pub(super) static HUBSPOT_AUTH: SectionSpec = SectionSpec {
    title: "hubspot credentials",
    about: "The `token` of a private app or service key; or `client_id`, `client_secret` and `refresh_token` of an OAuth app, whose \
            access token is renewed before it expires.",
    keys: &[
        key("token", ValueType::Secret, "Token of a private app or service key."),
        key("client_id", ValueType::Plain, "Client id of the OAuth app."),
        key("client_secret", ValueType::Secret, "Client secret of the OAuth app."),
        key("refresh_token", ValueType::Secret, "Refresh token of its installation in the account."),
    ],
    later: &[],
    rules: &[
        at_least_one(
            &["token", "refresh_token"],
            "hubspot credentials need `token` or `refresh_token`",
            HUBSPOT_CREDENTIALS,
        ),
        at_most_one(
            &["token", "refresh_token"],
            "`auth` must have `token` or `refresh_token`, not both",
            HUBSPOT_CREDENTIALS,
        ),
        needs(&["refresh_token", "client_id"], "hubspot credentials need `client_id`", HUBSPOT_CREDENTIALS),
        needs(&["refresh_token", "client_secret"], "hubspot credentials need `client_secret`", HUBSPOT_CREDENTIALS),
        needs(&["client_id", "refresh_token"], "`client_id` is for `refresh_token`", HUBSPOT_CREDENTIALS),
        needs(&["client_secret", "refresh_token"], "`client_secret` is for `refresh_token`", HUBSPOT_CREDENTIALS),
    ],
};

pub(super) static POSTGRES: SectionSpec = SectionSpec {
    title: "a postgres destination",
    about: "More keys of a destination of `type: postgres`. The table sluice_effects is created on first use.",
    keys: &[
        key(
            "url",
            ValueType::Secret,
            "postgres://USER:PASSWORD@HOST/DATABASE. TLS is used for every host except loopback; sslmode=disable in the URL turns it off.",
        )
        .required(),
        key("statement_timeout", LASTING, "Statement timeout of the server.").or("10s"),
        key("ca_certificate", ValueType::Plain, "CA certificate of the server, in PEM format.")
            .or("the trust store of this machine"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static SMTP: SectionSpec = SectionSpec {
    title: "an smtp destination",
    about: "More keys of a destination of `type: smtp`.",
    keys: &[
        key("host", ValueType::Text, "Host of the mail server.").required(),
        key("port", ValueType::Count(1, 65_535), "Port of the mail server.")
            .or("587 for starttls, 465 for tls, 25 for none"),
        key(
            "tls",
            ValueType::OneOf(&SmtpTls::NAMES),
            "TLS mode of the connection. none is only allowed for loopback, unless allow_plaintext is set.",
        )
        .or("starttls"),
        key("allow_plaintext", ValueType::Flag, "Allow unencrypted mail and passwords on the network.").or("false"),
        key("user", ValueType::Plain, "The user name."),
        key("password", ValueType::Secret, "The password."),
        key("from", ValueType::Described("an address, or Name <address>"), "Sender address.").required(),
        key("ca_certificate", ValueType::Plain, "CA certificate of the server, in PEM format.")
            .or("the trust store of this machine"),
    ],
    later: &[],
    rules: &[
        needs(&["user", "password"], "an smtp destination needs `password` too", "set user and password, or neither"),
        needs(&["password", "user"], "an smtp destination needs `user` too", "set user and password, or neither"),
    ],
};

pub(super) static SLACK: SectionSpec = SectionSpec {
    title: "a slack destination",
    about: "More keys of a destination of `type: slack`: a bot's `token`, or the `webhook_url` of an incoming webhook.",
    keys: &[
        key("token", ValueType::Secret, "A bot's token (xoxb-…) with the scopes chat:write and channels:history."),
        key("webhook_url", ValueType::Secret, "The URL of an incoming webhook. Its messages cannot be read back."),
        key("base_url", ValueType::Url, "URL of the API.").or("https://slack.com/api"),
        key(
            "signing_secret",
            ValueType::Secret,
            "Signing secret of the Slack app. Button presses are received at /slack/interactions/NAME of the intake.",
        ),
    ],
    later: &[],
    rules: &[
        at_least_one(
            &["token", "webhook_url"],
            "a slack destination needs `token` or `webhook_url`",
            "such as: token: ${secrets.NAME}",
        ),
        at_most_one(
            &["token", "webhook_url"],
            "a slack destination must have `token` or `webhook_url`, not both",
            "keep the token: its messages can be read back",
        ),
    ],
};

pub(super) static SCRIPT: SectionSpec = SectionSpec {
    title: "a script destination",
    about: "A destination of `type: script` has no additional keys. A built-in one is named `script`; declare it to change its concurrency or rate.",
    keys: &[],
    later: &[],
    rules: &[],
};

pub(super) fn read_hubspot(fields: &Fields<'_, '_>) -> Option<HubspotDestination> {
    let auth = fields.node("auth").and_then(|node| read_hubspot_auth(fields, node));
    let base_url = match fields.node("base_url") {
        Some(_) => read_url(fields, "base_url")?.trim_end_matches('/').to_owned(),
        None => HUBSPOT_URL.to_owned(),
    };
    let api_version = fields.text("api_version").unwrap_or(HUBSPOT_API_VERSION);
    let is_dated = api_version.len() == 7
        && api_version.bytes().enumerate().all(|(at, byte)| if at == 4 { byte == b'-' } else { byte.is_ascii_digit() });
    if api_version != HUBSPOT_API_VERSION && !is_dated {
        fields
            .report
            .error(
                fields.value_span("api_version"),
                "bad-value",
                format!("`{api_version}` is not a version of the HubSpot API"),
            )
            .hint("write v3, or a version such as 2026-03");
    }
    Some(HubspotDestination { base_url, api_version: api_version.to_owned(), auth: auth? })
}

fn read_hubspot_auth(fields: &Fields<'_, '_>, node: &YamlNode) -> Option<HubspotAuth> {
    let fields = Fields::open(fields.report, node, &[&HUBSPOT_AUTH])?;
    if fields.node("token").is_some() {
        return fields.secret("token").map(HubspotAuth::Token);
    }
    let (client_id, client_secret) = (read_revealed(&fields, "client_id"), fields.secret("client_secret"));
    let refresh_token = fields.secret("refresh_token");
    Some(HubspotAuth::RefreshToken {
        client_id: client_id?,
        client_secret: client_secret?,
        refresh_token: refresh_token?,
    })
}

pub(super) fn read_postgres(fields: &Fields<'_, '_>) -> Option<PostgresDestination> {
    let url = fields.secret("url");
    let statement_timeout = fields.duration("statement_timeout").unwrap_or(STATEMENT_TIMEOUT);
    let ca_certificate = read_certificate(fields);
    Some(PostgresDestination { url: url?, statement_timeout, ca_certificate })
}

pub(super) fn read_smtp(fields: &Fields<'_, '_>) -> Option<SmtpDestination> {
    let report = fields.report;
    let host = fields.text("host");
    let tls = fields.one_of("tls").and_then(SmtpTls::parse).unwrap_or(SmtpTls::StartTls);
    let port = fields.count("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(tls.port());
    let allowed = fields.flag("allow_plaintext").unwrap_or(false);
    if let (SmtpTls::None, Some(host), false) = (tls, host, allowed)
        && !is_this_machine(host)
    {
        report
            .error(fields.key_span("tls"), "plaintext", format!("mail to `{host}` would be sent unencrypted"))
            .hint("write tls: starttls or tls: tls; or add allow_plaintext: true to allow this");
    }
    let login = match (fields.node("user"), fields.node("password")) {
        (Some(_), Some(_)) => {
            let (user, password) = (read_revealed(fields, "user"), fields.secret("password"));
            Some(SmtpLogin { user: user?, password: password? })
        }
        _ => None,
    };
    let from = fields.text("from");
    if let Some(text) = from
        && !text.contains('@')
    {
        let span = fields.node("from").map_or(fields.span, |node| node.span);
        report.error(span, "bad-value", format!("`{text}` is not an address")).hint("such as: Shop <shop@example.com>");
    }
    let ca_certificate = read_certificate(fields);
    Some(SmtpDestination { host: host?.to_owned(), port, tls, login, from: from?.to_owned(), ca_certificate })
}

pub(super) fn read_slack(fields: &Fields<'_, '_>) -> Option<SlackDestination> {
    let base_url = match fields.node("base_url") {
        Some(_) => read_url(fields, "base_url")?.trim_end_matches('/').to_owned(),
        None => SLACK_URL.to_owned(),
    };
    let way = match (fields.node("token"), fields.node("webhook_url")) {
        (Some(_), None) => SlackTransport::Token(fields.secret("token")?),
        (None, Some(_)) => SlackTransport::Webhook(fields.secret("webhook_url")?),
        _ => return None,
    };
    let signing_secret = match fields.node("signing_secret") {
        Some(_) => Some(fields.secret("signing_secret")?),
        None => None,
    };
    Some(SlackDestination { base_url, transport: way, signing_secret })
}

fn read_certificate(fields: &Fields<'_, '_>) -> Option<sluice_domain::verify::SecretValue> {
    secret_text(fields.report, fields.node("ca_certificate")?, "ca_certificate", Literal::Accepted)
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
