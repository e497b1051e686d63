//! One item of `triggers:`.

use serde_json::Value;
use sluice_domain::event::EventMapping;
use sluice_domain::flow::{BodySettings, ContentDedup, Flow, Idempotency, RateLimit};
use sluice_domain::key::KeyStrategy;
use sluice_domain::template::{Expression, Template};
use sluice_domain::unit;
use sluice_domain::verify::{Preset, Success, Verifier};

use super::body::{self, Dedup};
use super::diagnostics::Report;
use super::event::ReadEvent;
use super::fields::Fields;
use super::key as keys;
use super::node::{Span, YamlNode};
use super::preset;
use super::table::{LASTING, SectionSpec, ValueType, key};
use super::verify::{self, SecretLimits};

pub(super) static TRIGGER: SectionSpec = SectionSpec {
    title: "a trigger",
    about: "Trigger of a flow. A flow with several triggers becomes one flow per trigger, named NAME, NAME#2 and so on.",
    keys: &[key("http", ValueType::Table("an http trigger"), "HTTP endpoint on the intake listener.").required()],
    later: &["schedule"],
    rules: &[],
};

pub(super) static HTTP: SectionSpec = SectionSpec {
    title: "an http trigger",
    about: "HTTP endpoint on the intake listener.",
    keys: &[
        key("path", ValueType::Described("a path that begins with /"), "Path of the endpoint.").required(),
        key("method", ValueType::OneOf(&["POST", "PUT", "PATCH", "GET"]), "HTTP method.").or("POST"),
        key("verify", ValueType::Table("a verification"), "Verification of the sender.")
            .or("only callers on loopback are accepted"),
        key("idempotency", ValueType::Table("idempotency"), "Idempotency key.")
            .or("the sender's event id if its scheme defines one, else a fingerprint of the body"),
        key("dedup", ValueType::Table("dedup"), "Duplicate detection beyond the key."),
        key("body", ValueType::Table("a body"), "Format of the body.").or("the defaults of the sender's scheme"),
        key(
            "rate_limit",
            ValueType::Described("a rate such as 100/s, or a map with rate and burst"),
            "Rate limit of the source.",
        )
        .or("no limit"),
        key("body_max", ValueType::Size(BODY_BYTES_MAX), "Maximum size of the body, before and after decompression.")
            .or("256KiB"),
        key("success_status", ValueType::OneOf(&["200", "202"]), "HTTP status of a success.")
            .or("the status that the sender's scheme expects; else 202"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static IDEMPOTENCY: SectionSpec = SectionSpec {
    title: "idempotency",
    about: "Idempotency key.",
    keys: &[
        key("key_from", ValueType::Table("a key"), "Source of the key.")
            .or("[source, event_type, event_id] if the event id is mapped, then a fingerprint within the event type"),
        key(
            "store",
            ValueType::Described("ledger or kv:NAME"),
            "Has no effect: keys are always stored in the ledger, separately for each flow.",
        )
        .or("ledger"),
        key("ttl", LASTING, "Lifetime of a key.").or("30d"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static RATE_LIMIT: SectionSpec = SectionSpec {
    title: "a rate limit",
    about: "Rate limit of a source.",
    keys: &[
        key("rate", ValueType::Rate, "Maximum rate, evenly spread.").required(),
        key("burst", ValueType::Count(1, 1_000_000), "Number of requests accepted at once after an idle period.")
            .or("the requests of one second, at least 1"),
    ],
    later: &[],
    rules: &[],
};

const BODY_BYTES_MAX: u64 = 32 * 1024 * 1024;

pub(super) struct Trigger {
    pub(super) path: String,
    pub(super) path_span: Span,
    pub(super) method: String,
    pub(super) verify: Option<Verifier>,
    pub(super) idempotency: Idempotency,
    /// `key_from` as written, for comparison with a step's.
    pub(super) key_written: Option<Value>,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) secret_limits: SecretLimits,
    pub(super) body_bytes_max: u64,
    pub(super) body: BodySettings,
    pub(super) event: EventMapping,
    pub(super) success: Success,
}

/// Reads every trigger; the paths of one flow must differ.
pub(super) fn read_all(report: Report<'_>, node: Option<&YamlNode>, event: &ReadEvent) -> Vec<Trigger> {
    let Some(node) = node else { return vec![] };
    let items = match (node.items(), node.entries()) {
        (Some(items), _) => items,
        // A single trigger without a list is accepted.
        (None, Some(_)) => std::slice::from_ref(node),
        (None, None) => {
            report.error(node.span, "wrong-type", format!("`triggers` must be a list, found {}", node.describe()));
            return vec![];
        }
    };
    if items.is_empty() {
        report
            .error(node.span, "no-triggers", "the flow has no trigger")
            .hint("such as: triggers: [{http: {path: /contacts}}]");
    }
    let mut triggers: Vec<Trigger> = vec![];
    for item in items {
        let Some(fields) = Fields::open(report, item, &[&TRIGGER]) else { continue };
        let Some(trigger) = fields.node("http").and_then(|node| read(report, node, event)) else { continue };
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

fn read(report: Report<'_>, node: &YamlNode, event: &ReadEvent) -> Option<Trigger> {
    let fields = Fields::open(report, node, &[&HTTP])?;
    let mut secret_limits = SecretLimits::new();
    let verify = read_verify(&fields, &mut secret_limits);
    let preset = preset::of(verify.as_ref());
    let mut mapping = event.mapping.clone();
    if let Some(preset) = preset {
        preset::fill(&mut mapping, preset, event.type_written);
    }
    let (idempotency, key_written) = read_idempotency(&fields, verify.as_ref(), preset, &mapping);
    let mut body = preset::body(preset, verify.as_ref());
    if let Some(node) = fields.node("body") {
        body::read(report, node, &mut body);
    }
    let body_bytes_max = fields.size("body_max").unwrap_or(Flow::BODY_BYTES_MAX);
    let rate_limit = fields.node("rate_limit").and_then(|node| read_rate_limit(&fields, node));
    let method = fields.one_of("method").unwrap_or("POST").to_owned();
    let success = match fields.one_of("success_status") {
        Some("200") => Success::Exactly200,
        Some(_) => Success::Any2xx,
        None => preset.map_or(Success::Any2xx, |preset| preset.success),
    };
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
        secret_limits,
        body_bytes_max,
        body,
        event: mapping,
        success,
    })
}

fn check_path(report: Report<'_>, span: Span, path: &str) {
    let problem = if !path.starts_with('/') {
        Some((format!("the path `{path}` does not start with /"), format!("write /{path}")))
    } else if let Some(c) = path.chars().find(|c| !(c.is_ascii_alphanumeric() || "/-_.~:@%".contains(*c))) {
        Some((format!("`{c}` is not allowed in a path"), "a path has letters, digits, / - _ . ~ : @ and %".into()))
    } else if path.contains("//") || path.split('/').any(|part| part == "." || part == "..") {
        Some((format!("the path `{path}` is ambiguous"), "remove //, . and ..".into()))
    } else {
        None
    };
    if let Some((message, hint)) = problem {
        report.error(span, "bad-path", message).hint(hint);
    }
}

fn read_verify(fields: &Fields<'_, '_>, limits: &mut SecretLimits) -> Option<Verifier> {
    match fields.node("verify") {
        Some(node) => verify::read(fields.report, node, limits),
        None if fields.is_meant("verify") => None,
        None => {
            fields
                .report
                .warning(
                    fields.span,
                    "no-verification",
                    "the flow has no `verify:`, so only callers on loopback are accepted",
                )
                .hint("add verify: with a scheme and a secret, or `verify: none` to accept every caller");
            None
        }
    }
}

/// Paths of the event time, as far as they are single fields.
fn moments(mapping: &EventMapping) -> Vec<Expression> {
    match &mapping.occurred_at {
        Some(Template::Expression(expression)) => vec![expression.clone()],
        Some(Template::Coalesce(coalesce)) => coalesce.alternatives.iter().flatten().cloned().collect(),
        _ => vec![],
    }
}

fn read_idempotency(
    fields: &Fields<'_, '_>,
    verify: Option<&Verifier>,
    preset: Option<&Preset>,
    mapping: &EventMapping,
) -> (Idempotency, Option<Value>) {
    let report = fields.report;
    let Dedup { content_window, mut volatile, on_clash } =
        fields.node("dedup").map(|node| body::read_dedup(report, node)).unwrap_or_default();
    volatile.extend(preset.map(|preset| preset::paths(preset.volatile)).unwrap_or_default());
    let section = fields.node("idempotency");
    let inner = section.and_then(|node| Fields::open(report, node, &[&IDEMPOTENCY]));
    let key = inner.as_ref().and_then(|inner| inner.node("key_from"));
    let moments = moments(mapping);
    let known = keys::Known { event_id: mapping.source_event_id.is_some(), occurred_at: &moments };
    let mut strategies = match key {
        Some(node) => keys::read(report, node, known),
        None if known.event_id => preset::by_event_id(mapping),
        None => {
            let meant =
                fields.is_meant("idempotency") || inner.as_ref().is_some_and(|inner| inner.is_meant("key_from"));
            if !meant && (section.is_none() || inner.is_some()) {
                report
                    .warning(
                        fields.key_span("idempotency"),
                        "no-idempotency-key",
                        "without `key_from` two requests are duplicates only if their bodies are equal: a delivery with a new timestamp is a new event",
                    )
                    .hint("add idempotency: {key_from: header:Idempotency-Key} or the path of the sender's event id, such as body.id");
            }
            vec![KeyStrategy::Fingerprint { parts: vec![], volatile: vec![] }]
        }
    };
    for strategy in &mut strategies {
        if let KeyStrategy::Fingerprint { volatile: own, .. } = strategy {
            own.extend(volatile.iter().filter(|path| !own.contains(path)).cloned().collect::<Vec<_>>());
        }
    }
    volatile.extend(preset::own_places(mapping));
    let owns_signed_content =
        content_window != ContentDedup::Off && preset::has_unsigned_id(verify, &strategies, mapping);
    let ttl = Idempotency::TTL;
    let mut idempotency = Idempotency { strategies, ttl, volatile, content_window, owns_signed_content, on_clash };
    let Some(inner) = inner else { return (idempotency, None) };
    if let Some(store) = inner.text("store")
        && store != "ledger"
        && store.strip_prefix("kv:").is_none_or(str::is_empty)
    {
        let span = inner.node("store").map_or(inner.span, |node| node.span);
        report.error(span, "bad-value", format!("`store` must be ledger or kv:NAME, found `{store}`"));
    }
    if let Some(ttl) = inner.duration("ttl") {
        idempotency.ttl = ttl;
        let span = inner.node("ttl").map_or(inner.span, |node| node.span);
        if let Some((scheme, horizon)) =
            verify.zip(preset).and_then(|(verifier, preset)| Some((verifier.scheme(), preset.retry_horizon?)))
            && ttl < horizon
        {
            report
                .warning(
                    span,
                    "ttl-too-short",
                    format!(
                        "{scheme} may repeat an event for {}, longer than the lifetime of its key ({})",
                        unit::format_duration(horizon),
                        unit::format_duration(ttl)
                    ),
                )
                .hint("remove `ttl` to use the default of 30d");
        }
    }
    (idempotency, key.map(YamlNode::to_value))
}

/// `rate_limit`: a rate, or a map with rate and burst.
pub(super) fn read_rate_limit(fields: &Fields<'_, '_>, node: &YamlNode) -> Option<RateLimit> {
    if node.entries().is_none() {
        let rate = fields.rate("rate_limit")?;
        return Some(RateLimit { rate, burst: default_burst(rate) });
    }
    let inner = Fields::open(fields.report, node, &[&RATE_LIMIT])?;
    let rate = inner.rate("rate")?;
    Some(RateLimit { rate, burst: inner.count("burst").unwrap_or_else(|| default_burst(rate)) })
}

/// The requests of one second, so that two simultaneous requests pass an even rate.
fn default_burst(rate: unit::Rate) -> u32 {
    let per_second = f64::from(rate.count) / rate.per.as_secs_f64().max(0.001);
    (per_second.ceil() as u32).max(1)
}
