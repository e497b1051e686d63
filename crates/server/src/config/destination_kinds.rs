//! The types of destination that are not HTTP with credentials: databases, mail, Slack and scripts.

use std::time::Duration;

use sluice_domain::destination::{
    PostgresDestination, SlackDestination, SlackTransport, SmtpDestination, SmtpLogin, SmtpTls,
};

use super::destination::{read_revealed, read_url};
use super::fields::{Fields, Literal, secret_text};
use super::rule::{at_least_one, at_most_one, needs};
use super::table::{LASTING, SectionSpec, ValueType, key};

/// When a server gives up on a statement, unless the destination says otherwise.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Where Slack's API is.
const SLACK_URL: &str = "https://slack.com/api";

pub(super) static POSTGRES: SectionSpec = SectionSpec {
    title: "a postgres destination",
    about: "More keys of a destination of `type: postgres`. The table sluice_effects is created there at the first use.",
    keys: &[
        key(
            "url",
            ValueType::Secret,
            "postgres://USER:PASSWORD@HOST/DATABASE. TLS is used for every host but this machine; sslmode=disable in the URL turns it off.",
        )
        .required(),
        key("statement_timeout", LASTING, "When the server gives up on a statement.").or("10s"),
        key("ca_certificate", ValueType::Plain, "Who vouches for the server, in PEM.")
            .or("what this machine trusts"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static SMTP: SectionSpec = SectionSpec {
    title: "an smtp destination",
    about: "More keys of a destination of `type: smtp`.",
    keys: &[
        key("host", ValueType::Text, "The mail server.").required(),
        key("port", ValueType::Count(1, 65_535), "Its port.").or("587 for starttls, 465 for tls, 25 for none"),
        key(
            "tls",
            ValueType::OneOf(&SmtpTls::NAMES),
            "How the way there is protected. none is only for this machine, unless allow_plaintext is set.",
        )
        .or("starttls"),
        key("allow_plaintext", ValueType::Flag, "Mail and password may cross a network unprotected.").or("false"),
        key("user", ValueType::Plain, "The user name."),
        key("password", ValueType::Secret, "The password."),
        key("from", ValueType::Described("an address, or Name <address>"), "Who mail is from.").required(),
        key("ca_certificate", ValueType::Plain, "Who vouches for the server, in PEM.").or("what this machine trusts"),
    ],
    later: &[],
    rules: &[
        needs(&["user", "password"], "an smtp destination needs `password` too", "give user and password, or neither"),
        needs(&["password", "user"], "an smtp destination needs `user` too", "give user and password, or neither"),
    ],
};

pub(super) static SLACK: SectionSpec = SectionSpec {
    title: "a slack destination",
    about: "More keys of a destination of `type: slack`: a bot's `token`, or the `webhook_url` of an incoming webhook.",
    keys: &[
        key("token", ValueType::Secret, "A bot's token (xoxb-…) with the scopes chat:write and channels:history."),
        key("webhook_url", ValueType::Secret, "The URL of an incoming webhook. A message there cannot be read back."),
        key("base_url", ValueType::Url, "Where the API is.").or("https://slack.com/api"),
        key(
            "signing_secret",
            ValueType::Secret,
            "What Slack signs pressed buttons with; they come to /slack/interactions/NAME of the intake.",
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
            "a slack destination has `token` or `webhook_url`, not both",
            "keep the token: what was sent with it can be read back",
        ),
    ],
};

pub(super) static SCRIPT: SectionSpec = SectionSpec {
    title: "a script destination",
    about: "A destination of `type: script` has no keys of its own. It is always there under the name `script`; declare it to \
            change its concurrency or its rate.",
    keys: &[],
    later: &[],
    rules: &[],
};

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
            .error(fields.key_span("tls"), "plaintext", format!("mail to `{host}` would cross the network unprotected"))
            .hint("write tls: starttls or tls: tls; if this is meant, add allow_plaintext: true");
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
