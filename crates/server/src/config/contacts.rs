//! `contacts:`, how events become contacts.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_domain::action::Action;
use sluice_domain::contact::{
    ContactRules, CorrelationRule, IdentifierRule, MergedWrite, OnConflict, SourceTrust, TRUST_DEFAULT, WAIT_DEFAULT,
    WAIT_MAX,
};
use sluice_domain::flow::Flow;

use super::declarations::{Declarations, Placed, SourceLocation};
use super::diagnostics::{Diagnostics, Report};
use super::fields::Fields;
use super::node::{Span, YamlNode};
use super::problem::did_you_mean;
use super::table::{SOME_TIME, SectionSpec, ValueType, key};
use super::worker::ReadWorker;

/// Identifiers of a configuration that names none, in the order of precedence.
const IDENTIFIERS: [&str; 5] = ["contact_external_id", "external_id", "email", "phone_e164", "phone"];
const TRUST: ValueType = ValueType::Count(0, 100);

pub(super) static CONTACTS: SectionSpec = SectionSpec {
    title: "contacts",
    about: "Keeps one contact for each person, whichever source sends: events are assigned to contacts by their identity fields, and the fields of a contact are merged by trust and time. Events without an identifier have no contact.",
    keys: &[
        key(
            "identifiers",
            ValueType::Tables("an identifier"),
            "Identity fields that identify a contact, in the order of precedence.",
        )
        .or("contact_external_id, external_id, email, phone_e164, phone"),
        key("trust", TRUST, "Trust of every source that is not listed.").or("50"),
        key("sources", ValueType::Tables("trust of a source"), "Trust of single sources."),
        key(
            "correlate",
            ValueType::Tables("a correlation"),
            "Fields that link a quarantined event without an identity with a later event that has one.",
        ),
        key(
            "on_conflict",
            ValueType::OneOf(&["first", "quarantine"]),
            "What becomes of an event whose identifiers belong to several contacts, or to one that has another id: the first identifier decides, or the event is quarantined (`identity-conflict`) until an operator decides.",
        )
        .or("first"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static IDENTIFIER: SectionSpec = SectionSpec {
    title: "an identifier",
    about: "Email addresses and phone numbers (`email`, `phone`, `phone_e164`) are compared in normalized form, and a contact may have several. Any other field is an id: it counts for its source, and a contact has at most one.",
    keys: &[
        key("field", ValueType::Name, "Name of the identity field.").required(),
        key("shared", ValueType::Flag, "The same id from two sources means the same contact.").or("false"),
        key("replaceable", ValueType::Flag, "A newer or more trusted value may replace the first one.").or("false"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static CORRELATION: SectionSpec = SectionSpec {
    title: "a correlation",
    about: "An event that was quarantined because it has no identity (`identity-missing`) is released by a later event of the same source with the same value in this field and an identifier. It belongs to the contact of that event.",
    keys: &[
        key(
            "field",
            ValueType::Name,
            "Name of an identity field or an attribute, such as a session id. Each value must belong to one person.",
        )
        .required(),
        key("within", ValueType::Between(SOME_TIME, WAIT_MAX), "How long an event waits.").or("7d"),
    ],
    later: &[],
    rules: &[],
};

pub(super) static SOURCE_TRUST: SectionSpec = SectionSpec {
    title: "trust of a source",
    about: "A value of a source with higher trust is never replaced by one of a source with lower trust. At the same trust the newer value counts.",
    keys: &[
        key("source", ValueType::Name, "Name of the source.").required(),
        key("trust", TRUST, "Trust for every field that is not listed.").or("the `trust` of contacts"),
        key("fields", ValueType::Tables("trust for a field"), "Trust for single fields."),
    ],
    later: &[],
    rules: &[],
};

pub(super) static FIELD_TRUST: SectionSpec = SectionSpec {
    title: "trust for a field",
    about: "Trust of a source for one field.",
    keys: &[
        key("field", ValueType::Name, "Name of an identity field or an attribute.").required(),
        key("trust", TRUST, "Trust, from 0 to 100.").required(),
    ],
    later: &[],
    rules: &[],
};

/// The rules with the places of the sources that they name.
#[derive(Debug)]
pub(super) struct ReadContacts {
    rules: ContactRules,
    sources: Vec<(String, Span)>,
    correlated: Vec<(String, Span)>,
}

impl ReadContacts {
    /// Names of the identity fields that identify a contact.
    pub(super) fn identifiers(&self) -> impl Iterator<Item = &str> {
        self.rules.identifiers.iter().map(|rule| rule.field.as_str())
    }

    pub(super) fn into_rules(self) -> Arc<ContactRules> {
        Arc::new(self.rules)
    }
}

pub(super) fn read(report: Report<'_>, node: &YamlNode, names: &mut Declarations) {
    if let Some(first) = &names.contacts {
        report
            .error(node.span, "duplicate-name", format!("contacts are already defined in {}", first.place.describe()))
            .hint("keep one `contacts:` section");
        return;
    }
    let Some(fields) = Fields::open(report, node, &[&CONTACTS]) else { return };
    let trust = fields.count("trust").and_then(|trust| u8::try_from(trust).ok()).unwrap_or(TRUST_DEFAULT);
    let mut rules = ContactRules { trust, ..ContactRules::default() };
    for item in items(&fields, "identifiers") {
        read_identifier(report, item, &mut rules);
    }
    if fields.node("identifiers").is_none() {
        rules.identifiers = IDENTIFIERS.map(IdentifierRule::new).to_vec();
    }
    let mut sources = vec![];
    for item in items(&fields, "sources") {
        read_source(report, item, &mut rules, &mut sources);
    }
    let mut correlated = vec![];
    for item in items(&fields, "correlate") {
        read_correlation(report, item, &mut rules, &mut correlated);
    }
    if fields.one_of("on_conflict") == Some("quarantine") {
        rules.on_conflict = OnConflict::Quarantine;
    }
    let place = SourceLocation::new(report, node.span);
    names.contacts = Some(Placed { place, value: ReadContacts { rules, sources, correlated } });
}

/// The items of a list; anything else is reported.
fn items<'n>(fields: &Fields<'n, '_>, name: &'static str) -> &'n [YamlNode] {
    let Some(node) = fields.node(name) else { return &[] };
    match node.items() {
        Some(items) => items,
        None => fields.wrong(name, node).unwrap_or_default(),
    }
}

fn read_identifier(report: Report<'_>, node: &YamlNode, rules: &mut ContactRules) {
    let Some(fields) = Fields::open(report, node, &[&IDENTIFIER]) else { return };
    let (shared, replaceable) = (fields.flag("shared"), fields.flag("replaceable"));
    let Some((field, span)) = fields.name("field") else { return };
    if rules.identifiers.iter().any(|other| other.field == field) {
        report.error(span, "duplicate-name", format!("`{field}` is listed twice"));
        return;
    }
    if replaceable.unwrap_or(false) {
        rules.replaceable.insert(field.to_owned());
    }
    rules.identifiers.push(IdentifierRule { shared: shared.unwrap_or(false), ..IdentifierRule::new(field) });
}

fn read_correlation(
    report: Report<'_>,
    node: &YamlNode,
    rules: &mut ContactRules,
    correlated: &mut Vec<(String, Span)>,
) {
    let Some(fields) = Fields::open(report, node, &[&CORRELATION]) else { return };
    let within = fields.duration("within").unwrap_or(WAIT_DEFAULT);
    let Some((field, span)) = fields.name("field") else { return };
    if rules.correlate.iter().any(|other| other.field == field) {
        report.error(span, "duplicate-name", format!("`{field}` is listed twice"));
        return;
    }
    if rules.identifiers.iter().any(|rule| rule.field == field) {
        report
            .error(span, "exclusive-keys", format!("`{field}` is an identifier, so an event with it waits for nothing"))
            .hint("name a field that links events without identifying a person, such as a session id");
        return;
    }
    rules.correlate.push(CorrelationRule { field: field.to_owned(), within });
    correlated.push((field.to_owned(), span));
}

fn read_source(report: Report<'_>, node: &YamlNode, rules: &mut ContactRules, sources: &mut Vec<(String, Span)>) {
    let Some(fields) = Fields::open(report, node, &[&SOURCE_TRUST]) else { return };
    let level = |fields: &Fields<'_, '_>| fields.count("trust").and_then(|trust| u8::try_from(trust).ok());
    let mut trust = SourceTrust { trust: level(&fields), fields: BTreeMap::new() };
    for item in items(&fields, "fields") {
        let Some(of_field) = Fields::open(report, item, &[&FIELD_TRUST]) else { continue };
        if let (Some((field, _)), Some(level)) = (of_field.name("field"), level(&of_field)) {
            trust.fields.insert(field.to_owned(), level);
        }
    }
    let Some((source, span)) = fields.name("source") else { return };
    if rules.sources.insert(source.to_owned(), trust).is_some() {
        report.error(span, "duplicate-name", format!("the source `{source}` is listed twice"));
    }
    sources.push((source.to_owned(), span));
}

/// What `order: latest` writes; `None` with a problem if the step cannot.
pub(super) fn merged_write(fields: &Fields<'_, '_>, action: Action, names: &Declarations) -> Option<MergedWrite> {
    let report = fields.report;
    let chosen = fields.one_of("fields");
    if fields.one_of("order") != Some("latest") {
        if chosen.is_some() {
            report
                .error(fields.key_span("fields"), "missing-key", "`fields` requires `order: latest`")
                .hint("add `order: latest`, or remove `fields`");
        }
        return None;
    }
    let span = fields.key_span("order");
    let Some(parameter) = action.fields_parameter() else {
        report
            .error(span, "bad-value", format!("{} does not write the fields of a record", action.name()))
            .hint("`order: latest` is for salesforce.upsert and postgres.upsert");
        return None;
    };
    if fields.node("foreach").is_some() {
        report.error(span, "exclusive-keys", "`order: latest` cannot be combined with `foreach`");
    }
    if names.contacts.is_none() && !names.incomplete {
        report
            .error(
                span,
                "missing-section",
                "`order: latest` writes the merged state of a contact, and no contacts are kept",
            )
            .hint("add a section `contacts: {}`, or use `order: fifo`");
    }
    // A row that is inserted needs all its columns.
    let all_fields = chosen == Some("all") || action == Action::PostgresUpsert;
    Some(MergedWrite { parameter, all_fields })
}

/// Warns where events would not find their contact.
pub(super) fn check(
    diagnostics: &Diagnostics<'_>,
    names: &Declarations,
    flows: &BTreeMap<String, Placed<Arc<Flow>>>,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    let Some(Placed { place, value: contacts }) = &names.contacts else { return };
    let known: Vec<&str> = flows.values().map(|flow| flow.value.source.as_str()).collect();
    for (source, span) in contacts.sources.iter().filter(|(source, _)| !known.contains(&source.as_str())) {
        let hint = match did_you_mean(source, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "it is the `source` of a flow".to_owned(),
        };
        let message = format!("no flow has the source `{source}`, so its trust is never used");
        diagnostics.report(&place.file).warning(*span, "unknown-source", message).hint(hint);
    }
    check_correlated(diagnostics.report(&place.file), contacts, flows);
    check_identity_lookups(diagnostics, flows, workers);
    let is_merged = |worker: &ReadWorker| worker.worker.steps.iter().any(|step| step.merged.is_some());
    for (name, flow) in flows {
        let feeds = |worker: &ReadWorker| {
            let by_queue = flow.value.enqueue.iter().any(|enqueue| enqueue.queue == worker.worker.queue);
            by_queue || worker.worker.on.is_some()
        };
        if !workers.values().any(|worker| is_merged(&worker.value) && feeds(&worker.value)) {
            continue;
        }
        let identity = &flow.value.event.identity;
        let used: Vec<&str> = (contacts.rules.identifiers.iter().map(|rule| rule.field.as_str()))
            .filter(|field| identity.iter().any(|(name, _)| name == field))
            .collect();
        let (code, message) = match used.as_slice() {
            [] => ("identity-missing", format!("the events of `{name}` have no identifier of a contact")),
            ["phone" | "phone_e164"] => (
                "identity-ambiguous",
                format!(
                    "the events of `{name}` identify their contact by a phone number alone, which several people may share"
                ),
            ),
            _ => continue,
        };
        diagnostics
            .report(&flow.place.file)
            .warning(flow.place.span, code, message)
            .hint("map one of the fields of `contacts.identifiers` under `event.identity`");
    }
}

/// Warns about a lookup that supplies no identity, because no event is quarantined without one.
fn check_identity_lookups(
    diagnostics: &Diagnostics<'_>,
    flows: &BTreeMap<String, Placed<Arc<Flow>>>,
    workers: &BTreeMap<String, Placed<ReadWorker>>,
) {
    for (name, placed) in workers {
        let worker = &placed.value.worker;
        let Some(step) = worker.identity_lookups().last() else { continue };
        let feeds = |flow: &Flow| {
            let by_queue = flow.enqueue.iter().any(|enqueue| enqueue.queue == worker.queue);
            by_queue || worker.on.is_some()
        };
        let mut feeding = flows.values().filter(|flow| feeds(&flow.value)).peekable();
        let quarantines =
            |flow: &Flow| flow.admission.require_identity != Some(false) && !flow.event.identity.is_empty();
        if feeding.peek().is_some() && !feeding.any(|flow| quarantines(&flow.value)) {
            let message =
                format!("the lookup `{}` of `{name}` never supplies an identity: no flow requires one", step.id);
            diagnostics
                .report(&placed.place.file)
                .warning(placed.place.span, "identity-unused", message)
                .hint("map a field under `event.identity` of a flow and remove `require_identity: false`");
        }
    }
}

/// Warns about a link that no event can have.
fn check_correlated(report: Report<'_>, contacts: &ReadContacts, flows: &BTreeMap<String, Placed<Arc<Flow>>>) {
    let events = || flows.values().map(|flow| &flow.value.event);
    // Without `attributes`, every member of the body is one.
    if events().any(|event| event.attributes.is_none()) {
        return;
    }
    let mapped: Vec<&str> = events()
        .flat_map(|event| event.identity.iter().chain(event.attributes.iter().flatten()))
        .map(|(name, _)| name.as_str())
        .collect();
    for (field, span) in contacts.correlated.iter().filter(|(field, _)| !mapped.contains(&field.as_str())) {
        let hint = match did_you_mean(field, mapped.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "map it under `event.attributes` or `event.identity`".to_owned(),
        };
        let message = format!("no flow maps `{field}`, so it links no events");
        report.warning(*span, "unknown-field", message).hint(hint);
    }
}
