//! One item of `triggers:`: where requests come in, and how a repeat is recognised.

use serde_json::Value;
use sluice_domain::flow::{Flow, Idempotency, RateLimit};
use sluice_domain::key::KeyStrategy;
use sluice_domain::unit;
use sluice_domain::verify::Verifier;

use super::fields::Fields;
use super::key as keys;
use super::node::{Node, Span};
use super::report::Report;
use super::table::{Shape, Table, key};
use super::verify;

pub(super) static TRIGGER: Table = Table {
    title: "a trigger",
    about: "What starts a flow. A flow with several is one flow for each, called NAME, NAME#2 and so on.",
    keys: &[key("http", Shape::Table("an http trigger"), "A request on the intake listener.").required()],
    later: &["schedule"],
};

pub(super) static HTTP: Table = Table {
    title: "an http trigger",
    about: "A request on the intake listener.",
    keys: &[
        key("path", Shape::Described("a path that begins with /"), "Where requests come in.").required(),
        key("method", Shape::OneOf(&["POST", "PUT", "PATCH", "GET"]), "The method.").or("POST"),
        key("verify", Shape::Table("a verification"), "How a request proves where it comes from.")
            .or("only callers on loopback are answered"),
        key("idempotency", Shape::Table("idempotency"), "How a repeat is recognised.")
            .or("by a fingerprint of the body"),
        key(
            "rate_limit",
            Shape::Described("a rate such as 100/s, or a map with rate and burst"),
            "How often this source may send.",
        )
        .or("no limit"),
        key("body_max", Shape::Size, "The largest body that is read.").or("256KiB"),
    ],
    later: &[],
};

pub(super) static IDEMPOTENCY: Table = Table {
    title: "idempotency",
    about: "How a repeat is recognised.",
    keys: &[
        key("key_from", Shape::Table("a key"), "Where the key is.").or("fingerprint"),
        key(
            "store",
            Shape::Described("ledger or kv:NAME"),
            "Accepted for the record: keys are always kept in the ledger, each flow's apart.",
        )
        .or("ledger"),
        key("ttl", Shape::Duration, "How long a key is remembered.").or("30d"),
    ],
    later: &[],
};

pub(super) static RATE_LIMIT: Table = Table {
    title: "a rate limit",
    about: "How often a source may send.",
    keys: &[
        key("rate", Shape::Rate, "Evenly spread.").required(),
        key("burst", Shape::Count(1, 1_000_000), "How many at once when it has been quiet.")
            .or("what a second holds, at least 1"),
    ],
    later: &[],
};

const BODY_BYTES_MAX: u64 = 32 * 1024 * 1024;

/// A trigger as it was read.
pub(super) struct Trigger {
    pub(super) path: String,
    pub(super) path_span: Span,
    pub(super) method: String,
    pub(super) verify: Option<Verifier>,
    pub(super) idempotency: Idempotency,
    /// `key_from` as it was written, to compare a step's with.
    pub(super) key_written: Option<Value>,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) body_bytes_max: u64,
}

/// Reads every trigger; two of one flow must differ in their path.
pub(super) fn read_all(report: Report<'_>, node: Option<&Node>) -> Vec<Trigger> {
    let Some(node) = node else { return vec![] };
    let items = match (node.items(), node.entries()) {
        (Some(items), _) => items,
        // A single trigger without the dash is what it looks like.
        (None, Some(_)) => std::slice::from_ref(node),
        (None, None) => {
            report.error(node.span, "wrong-type", format!("`triggers` is a list, and this is {}", node.describe()));
            return vec![];
        }
    };
    if items.is_empty() {
        report
            .error(node.span, "no-triggers", "a flow without a trigger never starts")
            .hint("such as: triggers: [{http: {path: /contacts}}]");
    }
    let mut triggers: Vec<Trigger> = vec![];
    for item in items {
        let Some(fields) = Fields::open(report, item, &[&TRIGGER]) else { continue };
        let Some(trigger) = fields.node("http").and_then(|node| read(report, node)) else { continue };
        if triggers.iter().any(|other| other.path == trigger.path) {
            report
                .error(
                    trigger.path_span,
                    "duplicate-path",
                    format!("two triggers of this flow have the path {}", trigger.path),
                )
                .hint("several triggers of one flow need different paths");
            continue;
        }
        triggers.push(trigger);
    }
    triggers
}

fn read(report: Report<'_>, node: &Node) -> Option<Trigger> {
    let fields = Fields::open(report, node, &[&HTTP])?;
    let verify = read_verify(&fields);
    let (idempotency, key_written) = read_idempotency(&fields, verify.as_ref());
    let body_bytes_max = fields.size("body_max").unwrap_or(Flow::BODY_BYTES_MAX);
    if !(1..=BODY_BYTES_MAX).contains(&body_bytes_max) {
        report.error(fields.key_span("body_max"), "bad-value", "`body_max` must be from 1B to 32MiB");
    }
    let rate_limit = fields.node("rate_limit").and_then(|node| read_rate_limit(&fields, node));
    let method = fields.one_of("method").unwrap_or("POST").to_owned();
    let path = fields.text("path")?;
    let path_span = fields.node("path").map_or(fields.span, |node| node.span);
    check_path(report, path_span, path);
    Some(Trigger {
        path: path.to_owned(),
        path_span,
        method,
        verify,
        idempotency,
        key_written,
        rate_limit,
        body_bytes_max,
    })
}

fn check_path(report: Report<'_>, span: Span, path: &str) {
    let problem = if !path.starts_with('/') {
        Some((format!("the path `{path}` does not begin with /"), format!("write /{path}")))
    } else if let Some(c) = path.chars().find(|c| !(c.is_ascii_alphanumeric() || "/-_.~:@%".contains(*c))) {
        Some((format!("`{c}` cannot stand in a path"), "a path has letters, digits, / - _ . ~ : @ and %".into()))
    } else if path.contains("//") || path.split('/').any(|part| part == "." || part == "..") {
        Some((format!("the path `{path}` can be written in two ways"), "leave out //, . and ..".into()))
    } else {
        None
    };
    if let Some((message, hint)) = problem {
        report.error(span, "bad-path", message).hint(hint);
    }
}

fn read_verify(fields: &Fields<'_, '_>) -> Option<Verifier> {
    match fields.node("verify") {
        Some(node) => verify::read(fields.report, node),
        None if fields.is_meant("verify") => None,
        None => {
            fields
                .report
                .warning(
                    fields.span,
                    "no-verification",
                    "nothing proves who sends here, so only callers on loopback are answered",
                )
                .hint("add verify: with a scheme and a secret, or `verify: none` to believe everybody");
            None
        }
    }
}

fn read_idempotency(fields: &Fields<'_, '_>, verify: Option<&Verifier>) -> (Idempotency, Option<Value>) {
    let report = fields.report;
    let fingerprint = || vec![KeyStrategy::Fingerprint { volatile: vec![] }];
    let mut idempotency = Idempotency { strategies: fingerprint(), ttl: Idempotency::TTL };
    let section = fields.node("idempotency");
    let inner = section.and_then(|node| Fields::open(report, node, &[&IDEMPOTENCY]));
    let key = inner.as_ref().and_then(|inner| inner.node("key_from"));
    match key {
        Some(node) => idempotency.strategies = keys::read(report, node),
        None if fields.is_meant("idempotency") || inner.as_ref().is_some_and(|inner| inner.is_meant("key_from")) => {}
        None if section.is_none() || inner.is_some() => {
            report
                .warning(
                    fields.key_span("idempotency"),
                    "no-idempotency-key",
                    "without `key_from` two requests are the same only if their bodies are: a resend with a new timestamp counts as new",
                )
                .hint("add idempotency: {key_from: header:Idempotency-Key} or the path of the sender's event id, such as body.id");
        }
        None => {}
    }
    let Some(inner) = inner else { return (idempotency, None) };
    if let Some(store) = inner.text("store")
        && store != "ledger"
        && store.strip_prefix("kv:").is_none_or(str::is_empty)
    {
        let span = inner.node("store").map_or(inner.span, |node| node.span);
        report.error(span, "bad-value", format!("`store` must be ledger or kv:NAME, and this is `{store}`"));
    }
    if let Some(ttl) = inner.duration("ttl") {
        idempotency.ttl = ttl;
        let span = inner.node("ttl").map_or(inner.span, |node| node.span);
        if ttl.is_zero() {
            report.error(span, "bad-value", "a key that is remembered for no time recognises nothing");
        } else if let Some((scheme, horizon)) =
            verify.and_then(|verifier| Some((verifier.scheme(), verify::retry_horizon(verifier.scheme())?)))
            && ttl < horizon
        {
            report
                .warning(
                    span,
                    "ttl-too-short",
                    format!(
                        "{scheme} may repeat an event for {}, longer than its key is remembered ({})",
                        unit::format_duration(horizon),
                        unit::format_duration(ttl)
                    ),
                )
                .hint("leave `ttl` out: keys are then remembered for 30d");
        }
    }
    (idempotency, key.map(Node::to_value))
}

fn read_rate_limit(fields: &Fields<'_, '_>, node: &Node) -> Option<RateLimit> {
    if node.entries().is_none() {
        let rate = fields.rate("rate_limit")?;
        return Some(RateLimit { rate, burst: default_burst(rate) });
    }
    let inner = Fields::open(fields.report, node, &[&RATE_LIMIT])?;
    let rate = inner.rate("rate")?;
    Some(RateLimit { rate, burst: inner.count("burst").unwrap_or_else(|| default_burst(rate)) })
}

/// What a second holds, so that an even rate does not refuse two requests that arrive together.
fn default_burst(rate: unit::Rate) -> u32 {
    let per_second = f64::from(rate.count) / rate.per.as_secs_f64().max(0.001);
    (per_second.ceil() as u32).max(1)
}
