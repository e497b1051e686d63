//! `destinations:` to [`Destination`]s.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_domain::destination::{
    BreakerSettings, Destination, DestinationKind, GateSettings, HttpDestination, SalesforceAuth,
    SalesforceDestination, ScriptDestination,
};
use sluice_domain::verify::{SecretValue, is_header_name};

use super::budget;
use super::catalogue::Catalogue;
use super::connector_destination;
use super::declarations::{Placed, add};
use super::destination_kinds::{
    HUBSPOT, POSTGRES, SCRIPT, SLACK, SMTP, read_hubspot, read_postgres, read_slack, read_smtp,
};
use super::destination_stores::{FILE, S3, SES, WEB_PUSH, read_file, read_s3, read_ses, read_web_push};
use super::diagnostics::Report;
use super::failure_rules;
use super::fields::{Fields, Literal, secret_text};
use super::http_auth::{self, read_channel, read_signer};
use super::node::YamlNode;
use super::plaintext_secrets::{names_a_secret, secret_in_file};
use super::queue::named_items;
use super::rule::{at_least_one, at_most_one, needs};
use super::table::{LASTING, SectionSpec, ValueType, key};

pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// Upper bound for any script; the step sets its own timeout.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(3600);
const SALESFORCE_API_VERSION: &str = "v60.0";

pub(super) static DESTINATION: SectionSpec = SectionSpec {
    title: "a destination",
    about: "External system with credentials, limits and a circuit breaker. `destinations:` is a map of names to these, or a list of them. \
            These keys are common to all types.",
    keys: &[
        key("name", ValueType::Name, "Unique name; in a map, the key is the name.").required(),
        key(
            "type",
            ValueType::Described(
                "a built-in type (http, salesforce, hubspot, postgres, smtp, ses, script, slack, s3, webpush, file), or the name of a connector",
            ),
            "Type of the external system.",
        )
        .required(),
        key("timeout", LASTING, "Timeout of a call, including the connection.").or("30s"),
        key(
            "straggler_horizon",
            ValueType::Duration,
            "How long after its timeout a call may still be applied. Then the record of an unsure `salesforce.upsert` is read back, and written again if it differs. An effect that is read back counts as absent only after this time. `0s`: neither waits.",
        )
        .or("10m for salesforce; 60s for effects that look first, such as http.upsert; 0s for others"),
        key("concurrency", ValueType::Count(1, 10_000), "Maximum number of calls in flight.").or("16"),
        key("rate", ValueType::Rate, "Maximum rate of calls, evenly spread.").or("no limit"),
        key("burst", ValueType::Count(1, 100_000), "Number of calls that may start at once after an idle period.")
            .or("1"),
        key("breaker", ValueType::Table("a breaker"), "Circuit breaker."),
        key("budget", ValueType::Table("a budget"), "Calls in a day, and the share that is kept for live traffic.").or("no limit"),
        key("failure_rules", ValueType::Tables("a failure rule"), "What error responses mean; evaluated before the rules of the connector."),
    ],
    later: &[],
    rules: &[],
};

pub(super) static HTTP: SectionSpec = SectionSpec {
    title: "an http destination",
    about: "Additional keys of a destination of `type: http`.",
    keys: &[
        key("base_url", ValueType::Url, "Base of relative URLs. A private address is allowed here."),
        key(
            "headers",
            ValueType::Described("a map of header names to text"),
            "Headers of every request; ${secrets.NAME} is replaced.",
        ),
        key("auth", ValueType::Table("http credentials"), "Credentials."),
        key(
            "allow_private_addresses",
            ValueType::Flag,
            "Whether a URL from an event may use a private or loopback address.",
        )
        .or("false"),
        key(
            "ca_certificate",
            ValueType::Plain,
            "CA certificates in PEM format, of the API and of `token_url`. Only these are trusted.",
        )
        .or("the trust store of this machine"),
        key("client_certificate", ValueType::Plain, "Certificate chain of the client in PEM format (mTLS)."),
        key("client_key", ValueType::Secret, "Private key of the client certificate in PEM format."),
        key(
            "proxy",
            ValueType::Url,
            "Forward proxy, such as http://proxy.example:3128: a tunnel (CONNECT) for https, whole URLs for http. The proxy resolves the names, so it needs `base_url`. Proxies of the environment are never used.",
        ),
        key("proxy_auth", ValueType::Table("basic credentials"), "Credentials of the proxy."),
        key(
            "signing_secret",
            ValueType::Secret,
            "Signs every effect as a Standard Webhook (headers webhook-id, webhook-timestamp and webhook-signature); `whsec_` and base64, as receivers expect it. The id is the effect key, the same in every attempt.",
        ),
        key(
            "signing_secrets",
            ValueType::Described("a list of secrets"),
            "Several of them during a rotation: every request carries a signature by each, and a receiver may know either.",
        ),
    ],
    later: &[],
    rules: &[
        needs(&["client_certificate", "client_key"], "a client certificate needs `client_key`", CERTIFICATE_AND_KEY),
        needs(&["client_key", "client_certificate"], "`client_key` is for `client_certificate`", CERTIFICATE_AND_KEY),
        needs(
            &["proxy", "base_url"],
            "`proxy` needs `base_url`: the addresses of other URLs cannot be checked",
            "add the base_url of the API",
        ),
        needs(&["proxy_auth", "proxy"], "`proxy_auth` is for `proxy`", "set the address of the proxy"),
        at_most_one(
            &["signing_secret", "signing_secrets"],
            "`signing_secret` and `signing_secrets` are synonyms",
            "put every secret into `signing_secrets`",
        ),
    ],
};

const CERTIFICATE_AND_KEY: &str = "set client_certificate and client_key, or neither";

pub(super) static SALESFORCE: SectionSpec = SectionSpec {
    title: "a salesforce destination",
    about: "Additional keys of a destination of `type: salesforce`.",
    keys: &[
        key("instance_url", ValueType::Url, "https://MYDOMAIN.my.salesforce.com").required(),
        key("api_version", ValueType::Described("a version such as v60.0"), "Version of the API.").or("v60.0"),
        key("auth", ValueType::Table("salesforce credentials"), "Credentials.").required(),
        key(
            "allow_duplicates",
            ValueType::Flag,
            "Send the header that allows saves despite alert-only duplicate rules.",
        )
        .or("false"),
        key(
            "batch_max",
            ValueType::Count(1, 200),
            "Maximum number of waiting jobs whose records one call carries. 1: every record has a call of its own.",
        )
        .or("200"),
    ],
    later: &[],
    rules: &[],
};

const CLIENT_OR_TOKEN: &str = "set client_id and client_secret, or client_id, user and private_key, or a token";
const TOKEN_AND_CLIENT: &str = "`auth` must have `token`, or `client_id` and `client_secret`, not both";
const SALESFORCE_AUDIENCE: &str = "https://login.salesforce.com";

pub(super) static SALESFORCE_AUTH: SectionSpec = SectionSpec {
    title: "salesforce credentials",
    about: "`client_id` and `client_secret` for the client credentials flow; `client_id`, `user` and `private_key` for the JWT bearer \
            flow; or a `token` that is renewed externally.",
    keys: &[
        key("client_id", ValueType::Plain, "The consumer key."),
        key("client_secret", ValueType::Secret, "The consumer secret."),
        key("user", ValueType::Plain, "User name that the integration acts as."),
        key("private_key", ValueType::Secret, "RSA key that signs the assertion, in PEM format."),
        key("audience", ValueType::Plain, "Authorization server; https://test.salesforce.com for a sandbox.")
            .or("https://login.salesforce.com"),
        key("token", ValueType::Secret, "An access token. It is not refreshed after a 401."),
    ],
    later: &[],
    rules: &[
        at_least_one(
            &["client_secret", "private_key", "token"],
            "salesforce credentials need `client_secret`, `private_key` or `token`",
            CLIENT_OR_TOKEN,
        ),
        at_most_one(&["client_id", "token"], TOKEN_AND_CLIENT, "remove one of them"),
        at_most_one(&["client_secret", "token"], TOKEN_AND_CLIENT, "remove one of them"),
        at_most_one(&["private_key", "token"], TOKEN_AND_CLIENT, "remove one of them"),
        at_most_one(
            &["client_secret", "private_key"],
            "`auth` must have `client_secret` or `private_key`, not both",
            "remove one of them",
        ),
        needs(&["client_secret", "client_id"], "salesforce credentials need `client_id`", CLIENT_OR_TOKEN),
        needs(&["private_key", "client_id"], "salesforce credentials need `client_id`", CLIENT_OR_TOKEN),
        needs(&["private_key", "user"], "salesforce credentials need `user` with `private_key`", CLIENT_OR_TOKEN),
        needs(&["user", "private_key"], "`user` is for `private_key`", CLIENT_OR_TOKEN),
        needs(&["audience", "private_key"], "`audience` is for `private_key`", CLIENT_OR_TOKEN),
    ],
};

pub(super) static BREAKER: SectionSpec = SectionSpec {
    title: "a breaker",
    about: "Stops calls to a destination that keeps failing. Jobs wait meanwhile; waiting uses no attempt.",
    keys: &[
        key("window", ValueType::Duration, "Interval over which calls are counted.").or("30s"),
        key("calls_min", ValueType::Count(1, 100_000), "Minimum number of calls before the share is evaluated.")
            .or("20"),
        key("failure_percent", ValueType::Count(1, 100), "Percentage of failed calls that opens the breaker.").or("50"),
        key(
            "failures_in_a_row",
            ValueType::Count(1, 100_000),
            "Number of consecutive failures that opens the breaker.",
        )
        .or("10"),
        key("open_first", ValueType::Duration, "Duration of the first open period; doubled each time.").or("5s"),
        key("open_max", ValueType::Duration, "Maximum duration of an open period.").or("5m"),
    ],
    later: &[],
    rules: &[],
};

pub(super) fn read_all(
    report: Report<'_>,
    node: &YamlNode,
    connectors: &Catalogue,
    destinations: &mut BTreeMap<String, Placed<Option<Destination>>>,
) {
    for (name, span, settings) in named_items(report, node, "destinations", "a destination") {
        let destination = match settings {
            Some(settings) => read(report, name, settings, connectors),
            None => {
                let types = DestinationKind::NAMES.join(", ");
                report
                    .error(span, "missing-key", format!("the destination `{name}` needs `type`"))
                    .hint(format!("add `type:` with {types}"));
                None
            }
        };
        add(destinations, report, "destination", (name, span), destination);
    }
}

/// Built-in destination of this type, which needs no declaration.
pub(super) fn built_in(kind: &str) -> Option<Destination> {
    let (kind, timeout) = match kind {
        "http" => (DestinationKind::Http(HttpDestination::default()), TIMEOUT),
        "script" => (DestinationKind::Script(ScriptDestination::default()), SCRIPT_TIMEOUT),
        _ => return None,
    };
    let gate = GateSettings { breaker: usual_breaker(&kind), ..GateSettings::default() };
    Some(Destination {
        name: kind.as_str().into(),
        kind,
        timeout,
        straggler_horizon: None,
        batch_max: None,
        gate,
        failure_rules: vec![],
    })
}

/// Scripts are independent of each other, so a failing one must not stop the others.
fn usual_breaker(kind: &DestinationKind) -> BreakerSettings {
    match kind {
        DestinationKind::Script(_) => {
            BreakerSettings { calls_min: u32::MAX, failures_in_a_row: u32::MAX, ..BreakerSettings::default() }
        }
        _ => BreakerSettings::default(),
    }
}

fn read(report: Report<'_>, name: &str, node: &YamlNode, connectors: &Catalogue) -> Option<Destination> {
    let kind = node.get("type").and_then(YamlNode::text);
    let declared = kind.and_then(|kind| connectors.connector(kind));
    if let Some(None) = declared {
        return None;
    }
    let declared = declared.flatten();
    let own = declared.map(|connector| [&DESTINATION, connector_destination::table(connector)]);
    let tables: &[&SectionSpec] = match kind {
        Some("http") => &[&DESTINATION, &HTTP],
        Some("salesforce") => &[&DESTINATION, &SALESFORCE],
        Some("hubspot") => &[&DESTINATION, &HUBSPOT],
        Some("postgres") => &[&DESTINATION, &POSTGRES],
        Some("smtp") => &[&DESTINATION, &SMTP],
        Some("slack") => &[&DESTINATION, &SLACK],
        Some("s3") => &[&DESTINATION, &S3],
        Some("ses") => &[&DESTINATION, &SES],
        Some("webpush") => &[&DESTINATION, &WEB_PUSH],
        Some("file") => &[&DESTINATION, &FILE],
        Some("script") => &[&DESTINATION, &SCRIPT],
        _ if own.is_some() => own.as_ref().map_or(&[], |tables| tables.as_slice()),
        _ if node.entries().is_some() => {
            // Without the type the allowed keys are unknown; only the type is reported.
            return refuse_type(report, name, node, connectors);
        }
        _ => &[&DESTINATION],
    };
    let fields = Fields::open_named(report, node, tables)?;
    let kind = match kind {
        _ if declared.is_some() => {
            DestinationKind::Declared(declared.and_then(|connector| connector_destination::read(&fields, connector))?)
        }
        Some("salesforce") => DestinationKind::Salesforce(read_salesforce(&fields)?),
        Some("hubspot") => DestinationKind::Hubspot(read_hubspot(&fields)?),
        Some("postgres") => DestinationKind::Postgres(read_postgres(&fields)?),
        Some("smtp") => DestinationKind::Smtp(read_smtp(&fields)?),
        Some("slack") => DestinationKind::Slack(read_slack(&fields)?),
        Some("s3") => DestinationKind::S3(read_s3(&fields)?),
        Some("ses") => DestinationKind::Ses(read_ses(&fields)?),
        Some("webpush") => DestinationKind::WebPush(read_web_push(&fields)?),
        Some("file") => DestinationKind::File(read_file(&fields)?),
        Some("script") => DestinationKind::Script(ScriptDestination::default()),
        _ => DestinationKind::Http(read_http(&fields)),
    };
    let usual = if matches!(kind, DestinationKind::Script(_)) { SCRIPT_TIMEOUT } else { TIMEOUT };
    let timeout = fields.duration("timeout").unwrap_or(usual);
    let straggler_horizon = match fields.duration("straggler_horizon") {
        Some(horizon) => Some(horizon).filter(|horizon| !horizon.is_zero() || kind.straggler_horizon().is_none()),
        None => kind.straggler_horizon(),
    };
    let standard = GateSettings::default();
    let gate = GateSettings {
        concurrency_max: fields.count("concurrency").unwrap_or(standard.concurrency_max),
        rate: fields.rate("rate"),
        burst: fields.count("burst").unwrap_or(standard.burst),
        breaker: match fields.node("breaker") {
            Some(node) => read_breaker(report, node),
            None => usual_breaker(&kind),
        },
        budget: fields.node("budget").and_then(|node| budget::read(report, node, &kind)),
    };
    if fields.node("burst").is_some() && fields.node("rate").is_none() {
        report.warning(fields.key_span("burst"), "unused-key", "`burst` is not used without `rate`");
    }
    let failure_rules = failure_rules::read(&fields);
    let batch_max = fields.node_if_known("batch_max").and_then(|_| fields.count("batch_max"));
    Some(Destination { name: name.to_owned(), kind, timeout, straggler_horizon, batch_max, gate, failure_rules })
}

fn refuse_type(report: Report<'_>, name: &str, node: &YamlNode, connectors: &Catalogue) -> Option<Destination> {
    let types: Vec<&str> = DestinationKind::NAMES.into_iter().chain(connectors.types()).collect();
    let built_in = DestinationKind::NAMES.join(", ");
    let hint = format!("the types are {built_in}; `sluice connectors` lists more");
    match node.get("type") {
        Some(written) => {
            let text = written.text().unwrap_or_default();
            report.error(written.span, "unknown-type", format!("unknown destination type `{text}`")).meant(
                text,
                types.iter().copied(),
                &hint,
            );
        }
        None => {
            let span = node.entries().and_then(|entries| entries.first()).map_or(node.span, |entry| entry.key_span);
            report.error(span, "missing-key", format!("the destination `{name}` needs `type`")).hint(hint);
        }
    }
    None
}

fn read_breaker(report: Report<'_>, node: &YamlNode) -> BreakerSettings {
    let mut breaker = BreakerSettings::default();
    let Some(fields) = Fields::open(report, node, &[&BREAKER]) else { return breaker };
    breaker.window = fields.duration("window").unwrap_or(breaker.window);
    breaker.calls_min = fields.count("calls_min").unwrap_or(breaker.calls_min);
    breaker.failure_percent = fields.count("failure_percent").unwrap_or(breaker.failure_percent);
    breaker.failures_in_a_row = fields.count("failures_in_a_row").unwrap_or(breaker.failures_in_a_row);
    breaker.open_first = fields.duration("open_first").unwrap_or(breaker.open_first);
    breaker.open_max = fields.duration("open_max").unwrap_or(breaker.open_max.max(breaker.open_first));
    if breaker.open_max < breaker.open_first {
        report.error(fields.key_span("open_max"), "contradiction", "`open_max` is shorter than `open_first`");
    }
    breaker
}

fn read_http(fields: &Fields<'_, '_>) -> HttpDestination {
    HttpDestination {
        base_url: read_url(fields, "base_url"),
        headers: fields.node("headers").map(|node| read_headers(fields.report, node)).unwrap_or_default(),
        auth: fields.node("auth").and_then(|node| http_auth::read(fields, node)).unwrap_or_default(),
        allow_private_addresses: fields.flag("allow_private_addresses").unwrap_or(false),
        signer: read_signer(fields),
        channel: read_channel(fields),
    }
}

pub(super) fn read_headers(report: Report<'_>, node: &YamlNode) -> Vec<(String, SecretValue)> {
    let Some(entries) = node.entries() else {
        report.error(node.span, "wrong-type", format!("`headers` must be a map, found {}", node.describe()));
        return vec![];
    };
    let mut headers = vec![];
    for entry in entries {
        if !is_header_name(&entry.key) {
            report.error(entry.key_span, "bad-name", format!("`{}` cannot be the name of a header", entry.key));
        }
        let literal = if names_a_secret(&entry.key) { Literal::Refused } else { Literal::Accepted };
        if let Some(value) = secret_text(report, &entry.value, &entry.key, literal) {
            headers.push((entry.key.clone(), value));
        }
    }
    headers
}

fn read_salesforce(fields: &Fields<'_, '_>) -> Option<SalesforceDestination> {
    let instance_url = read_url(fields, "instance_url").map(|url| url.trim_end_matches('/').to_owned());
    let auth = fields.node("auth").and_then(|node| read_salesforce_auth(fields.report, node));
    let api_version = match fields.text("api_version") {
        Some(text) => read_api_version(fields, text),
        None => SALESFORCE_API_VERSION.to_owned(),
    };
    let allow_duplicates = fields.flag("allow_duplicates").unwrap_or(false);
    Some(SalesforceDestination { instance_url: instance_url?, api_version, auth: auth?, allow_duplicates })
}

fn read_api_version(fields: &Fields<'_, '_>, text: &str) -> String {
    let number = text.strip_prefix('v').unwrap_or(text);
    let good = number
        .split_once('.')
        .is_some_and(|(major, minor)| major.parse::<u32>().is_ok_and(|major| major >= 20) && minor == "0");
    if !good {
        let span = fields.node("api_version").map_or(fields.span, |node| node.span);
        fields
            .report
            .error(span, "bad-value", format!("`{text}` is not a version of the Salesforce API"))
            .hint(format!("write {SALESFORCE_API_VERSION}"));
    }
    format!("v{number}")
}

fn read_salesforce_auth(report: Report<'_>, node: &YamlNode) -> Option<SalesforceAuth> {
    let fields = Fields::open(report, node, &[&SALESFORCE_AUTH])?;
    if fields.node("token").is_some() {
        return fields.secret("token").map(SalesforceAuth::Token);
    }
    let client_id = read_revealed(&fields, "client_id");
    if fields.node("private_key").is_some() {
        let (user, private_key) = (read_revealed(&fields, "user"), fields.secret("private_key"));
        let audience = read_revealed(&fields, "audience").unwrap_or_else(|| SALESFORCE_AUDIENCE.to_owned());
        return Some(SalesforceAuth::JwtBearer {
            client_id: client_id?,
            user: user?,
            audience,
            private_key: private_key?,
        });
    }
    let client_secret = fields.secret("client_secret");
    Some(SalesforceAuth::ClientCredentials { client_id: client_id?, client_secret: client_secret? })
}

/// Non-secret text that may also be provided as a secret.
pub(super) fn read_revealed(fields: &Fields<'_, '_>, name: &'static str) -> Option<String> {
    let node = fields.node(name)?;
    secret_text(fields.report, node, name, Literal::Accepted).map(|value| value.expose().to_owned())
}

pub(super) fn read_url(fields: &Fields<'_, '_>, name: &'static str) -> Option<String> {
    let node = fields.node(name)?;
    let url = secret_text(fields.report, node, name, Literal::Accepted)?.expose().to_owned();
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let host = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or(""));
    match host {
        Some(host) if host.contains('@') => {
            secret_in_file(fields.report, node.span, name);
            None
        }
        Some(host) if !host.is_empty() && !url.contains(char::is_whitespace) => Some(url),
        _ => {
            fields
                .report
                .error(node.span, "bad-value", format!("`{name}` is not a URL"))
                .hint("write https://host/path");
            None
        }
    }
}
