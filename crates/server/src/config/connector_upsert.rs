//! `upsert:` of an action of a connector.

use sluice_domain::connector::UpsertRule;
use sluice_domain::outcome::EffectClass;

use super::connector::{AT_START, KnownNames, OF_ANSWER, OF_REQUEST, condition_over, text_template};
use super::connector_action::read_request;
use super::diagnostics::Report;
use super::expression::Visible;
use super::fields::Fields;
use super::node::YamlNode;
use super::table::{SectionSpec, ValueType, key};

const OF_PARAMETERS: Visible<'static> = Visible { roots: &["with"], ..AT_START };
const OF_RECORD: Visible<'static> = Visible { roots: &["record", "response", "with", "effect"], ..AT_START };
const OF_UPDATE: Visible<'static> = Visible { roots: &["with", "destination", "effect", "record"], ..AT_START };

pub(super) static UPSERT: SectionSpec = SectionSpec {
    title: "an upsert rule",
    about: "For providers that make a second record of a second request: the record is looked for first, and `request` creates it only if there is none. `success` and `failures` apply to all of these requests. See [record 54](../decisions/0054-upserts-without-idempotency.md).",
    keys: &[
        key(
            "identity",
            ValueType::Template,
            "What the record is found by. Reads `with`. Effects of one identity run one after the other; if it is empty, the job becomes a dead letter of class identity.",
        )
        .required(),
        key("find", ValueType::Table("a look for a record"), "Looks for the record.").required(),
        key("id", ValueType::Condition, "Id of a new record, over the answer to `request`.").required(),
        key(
            "update",
            ValueType::Table("a request of a connector"),
            "Updates a record that exists; expressions read `record.id` too. Without it such a record is left alone.",
        ),
    ],
    later: &[],
    rules: &[],
};

pub(super) static FIND: SectionSpec = SectionSpec {
    title: "a look for a record",
    about: "Status 404 means that there is none.",
    keys: &[
        key("request", ValueType::Table("a request of a connector"), "The request; it changes nothing.").required(),
        key("records", ValueType::Condition, "List of the records found, over the answer.").required(),
        key("id", ValueType::Condition, "Id of a record. Reads `record`.").required(),
    ],
    later: &[],
    rules: &[],
};

pub(super) fn read(report: Report<'_>, node: &YamlNode, known: &KnownNames<'_>) -> Option<UpsertRule> {
    let fields = Fields::open(report, node, &[&UPSERT])?;
    let identity = fields.node("identity");
    let identity = identity.and_then(|node| text_template(report, node, "identity", (OF_PARAMETERS, known)));
    let created_id = fields.node("id").and_then(|node| condition_over(report, node, (OF_ANSWER, known)));
    let update = match fields.node("update") {
        Some(node) => Some(read_request(report, node, (OF_UPDATE, known))?),
        None => None,
    };
    let find = fields.node("find").and_then(|node| Fields::open(report, node, &[&FIND]))?;
    let request = find.node("request").and_then(|node| read_request(report, node, (OF_REQUEST, known)));
    let records = find.node("records").and_then(|node| condition_over(report, node, (OF_ANSWER, known)));
    let record_id = find.node("id").and_then(|node| condition_over(report, node, (OF_RECORD, known)));
    Some(UpsertRule {
        identity: identity?,
        find: request?,
        records: records?,
        record_id: record_id?,
        created_id: created_id?,
        update,
    })
}

/// The look takes the place of a read-back.
pub(super) fn check(fields: &Fields<'_, '_>, class: Option<EffectClass>) {
    if fields.node("upsert").is_none() {
        return;
    }
    let report = fields.report;
    if class.is_some_and(|class| class != EffectClass::Verifiable) {
        report
            .error(fields.value_span("effect"), "contradiction", "an action with `upsert` is verifiable")
            .hint("write `effect: verifiable`");
    }
    for (name, reason) in [
        ("read_back", "the look of `upsert` is the read-back"),
        ("result", "the output of an upsert is id, identity and created"),
    ] {
        if fields.node(name).is_some() {
            report.error(fields.key_span(name), "unused-key", format!("`{name}` is not used with `upsert`: {reason}"));
        }
    }
    if fields.flag("mail").unwrap_or(false) {
        report.error(fields.key_span("mail"), "contradiction", "an action that sends a mail is no upsert");
    }
}
