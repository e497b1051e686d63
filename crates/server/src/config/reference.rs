//! Generates the configuration reference page from the section specs.

use std::fmt::Write;

use sluice_domain::verify::{FieldLocation, Scheme, preset};

use super::pages::{POLICIES, STEPS};
use super::table::{Absent, SectionSpec};
use super::{
    alerts, answers, body, budget, connector, connector_action, connector_batch, connector_failure, connector_upsert,
    contacts, destination, destination_kinds, destination_stores, document, event, failure_rules, field_mapping, flow,
    foreach, http_auth, key, notify, oidc, policy, queue, respond_within, retry, safe_mode, step, traces, trigger,
    verify, worker,
};

/// All section specs, in page order.
pub(super) fn tables() -> Vec<&'static SectionSpec> {
    vec![
        &document::FILE,
        &document::DOCUMENT,
        &document::POLICY,
        &flow::FLOW,
        &trigger::TRIGGER,
        &trigger::HTTP,
        &verify::VERIFY,
        &verify::SECRET,
        &verify::TIMESTAMP,
        &verify::LIST,
        &trigger::IDEMPOTENCY,
        &key::KEY_FROM,
        &key::FINGERPRINT,
        &body::DEDUP,
        &body::BODY,
        &trigger::RATE_LIMIT,
        &event::EVENT,
        &field_mapping::FIELD,
        &flow::FLOW_STEP,
        &flow::ENQUEUE,
        &flow::RESPONSES,
        &respond_within::RESPOND_WITHIN,
        &worker::WORKER,
        &worker::CONSUMES,
        &worker::SCHEDULE,
        &safe_mode::SAFE_MODE,
        &safe_mode::WHEN,
        &safe_mode::ERROR_RATE,
        &step::STEP,
        &foreach::PULL,
        &foreach::PUT,
        &foreach::PACE,
        &step::UNDO,
        &retry::RETRY,
        &retry::PHASE,
        &retry::EXPONENTIAL,
        &policy::POLICY,
        &policy::RULE,
        &policy::CONSENT,
        &policy::QUIET_HOURS,
        &policy::SUPPRESSION,
        &policy::LIMIT,
        &contacts::CONTACTS,
        &contacts::IDENTIFIER,
        &contacts::CORRELATION,
        &contacts::SOURCE_TRUST,
        &contacts::FIELD_TRUST,
        &alerts::ALERTS,
        &alerts::ALERT_RULE,
        &alerts::DIGEST,
        &notify::CHANNEL,
        &traces::TRACES,
        &oidc::OIDC,
        &oidc::OIDC_GROUP,
        &queue::QUEUE,
        &destination::DESTINATION,
        &destination::BREAKER,
        &budget::BUDGET,
        &destination::HTTP,
        &http_auth::HTTP_AUTH,
        &http_auth::BASIC,
        &http_auth::OAUTH_CLIENT,
        &http_auth::HMAC_SIGNATURE,
        &destination::SALESFORCE,
        &destination::SALESFORCE_AUTH,
        &destination_kinds::HUBSPOT,
        &destination_kinds::HUBSPOT_AUTH,
        &failure_rules::FAILURE_RULE,
        &destination_kinds::POSTGRES,
        &destination_kinds::SMTP,
        &destination_kinds::SLACK,
        &destination_stores::S3,
        &destination_stores::SES,
        &destination_stores::WEB_PUSH,
        &destination_stores::FILE,
        &destination_kinds::SCRIPT,
        &connector::CONNECTOR,
        &connector::KEY,
        &connector::AUTH,
        &connector::AUTH_BASIC,
        &connector::AUTH_HEADER,
        &connector::OAUTH,
        &connector::ASSERTION,
        &connector::ERROR,
        &connector::WAIT_FROM,
        &connector_failure::FAILURE,
        &connector_action::ACTION,
        &connector_action::PARAMETER,
        &connector_action::REQUEST,
        &connector_action::SUCCESS,
        &connector_action::READ_BACK,
        &connector_batch::BATCH,
        &connector_batch::MATCH,
        &connector_upsert::UPSERT,
        &connector_upsert::FIND,
        &answers::ANSWERS,
        &answers::CASE,
        &answers::EXPECTED_REQUEST,
        &answers::ANSWER,
        &answers::EACH,
    ]
}

const OPENING: &str = "\
# Configuration

A configuration is a directory of YAML or JSON files. `sluice check` reads it and reports every problem. [Workers and steps](steps.md),
[actions](actions.md), [expressions](expressions.md) and [policies](policies.md) have their own pages. Editors can use the
[JSON Schema](sluice.schema.json).

- Durations are written `250ms`, `90s`, `15m`, `48h`, `7d`; sizes `64KiB`, `1MiB`; rates `5/min`, `100/s`, `20/10s`.
- `{{ … }}` contains an [expression](expressions.md). Quotes are optional if it ends on the same line.
- `${secrets.NAME}` is a secret: the environment variable `SLUICE_SECRET_NAME`, then `NAME`, then the file `secrets/NAME`.
  Secrets are allowed in `verify:`, in `destinations:`, under `with:` and in a script's `env:`. Plain-text secrets are rejected.
";

pub fn reference() -> String {
    let mut page = OPENING.to_owned();
    for table in tables().into_iter().filter(|table| !STEPS.contains(&table.title) && !POLICIES.contains(&table.title))
    {
        write_table(&mut page, table);
    }
    page.push_str(SCHEMES);
    for scheme in Scheme::ALL {
        let id = match preset(*scheme).event_id {
            [] => "as the flow says".to_owned(),
            ways => ways.iter().map(|way| describe_id(way)).collect::<Vec<_>>().join("; else "),
        };
        let _ = writeln!(page, "| `{scheme}` | {} | {} |", cell(&id), id_protection(*scheme));
    }
    page
}

const SCHEMES: &str = "
## Verification schemes

The event id is what the default key is made of. If a part of it is missing, the next alternative applies, at last the event type with a
fingerprint of the content.

| scheme | event id | a captured request with another id |
|---|---|---|
";

/// The parts of an id, as paths.
fn describe_id(parts: &[FieldLocation]) -> String {
    let part = |part: &FieldLocation| match part {
        FieldLocation::Header(name) => format!("header `{name}`"),
        FieldLocation::Body(path) => format!("`{}`", path.join(".")),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" + ")
}

/// What stands against a captured request that is sent again with another id.
fn id_protection(scheme: Scheme) -> &'static str {
    let in_header = |way: &&[FieldLocation]| way.iter().any(|part| matches!(part, FieldLocation::Header(_)));
    match scheme {
        Scheme::StandardWebhooks | Scheme::Svix => "is rejected: the id is signed",
        Scheme::Mailgun => "is rejected: its token counts once",
        Scheme::GoogleAds | Scheme::Pipedrive | Scheme::Postmark | Scheme::MicrosoftGraph => {
            "is accepted: the credential covers no content"
        }
        Scheme::Bearer | Scheme::Token | Scheme::Basic | Scheme::None => {
            "is accepted: the credential covers no content"
        }
        Scheme::Hmac => "is rejected if `signed` has `{id}`; else it is a duplicate: signed content has one owner",
        _ if preset(scheme).event_id.iter().any(in_header) => {
            "is a duplicate: signed content has one owner within its event type"
        }
        _ => "is rejected: the id is part of the signed body",
    }
}

/// Heading of a section title: `a retry policy` becomes `Retry policy`.
fn heading(title: &str) -> String {
    let words = ["a ", "an ", "the ", "any "].iter().find_map(|article| title.strip_prefix(article)).unwrap_or(title);
    let mut characters = words.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

pub(super) fn write_table(page: &mut String, table: &SectionSpec) {
    let _ = write!(
        page,
        "\n## {}\n\n{}\n\n| key | value | default | description |\n|---|---|---|---|\n",
        heading(table.title),
        table.about
    );
    for key in table.keys {
        let absent = match key.default {
            Absent::Required => "required",
            Absent::Nothing => "",
            Absent::Default(text) => text,
        };
        let _ = writeln!(
            page,
            "| `{}` | {} | {} | {} |",
            key.name,
            cell(&key.shape.describe()),
            cell(absent),
            cell(key.about)
        );
    }
    if !table.later.is_empty() {
        let later: Vec<String> = table.later.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(page, "\nNot supported yet: {}.", later.join(", "));
    }
}

/// Escapes `|`, which ends a table cell.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table::ValueType;

    #[test]
    fn every_referenced_section_is_on_the_page() {
        let titles: Vec<&str> = tables().iter().map(|table| table.title).collect();
        for table in tables() {
            for key in table.keys {
                if let ValueType::Table(title) | ValueType::Tables(title) = key.shape {
                    assert!(titles.contains(&title), "`{}` of {} points to `{title}`", key.name, table.title);
                }
                assert!(!table.later.contains(&key.name), "`{}` of {} is known and for later", key.name, table.title);
            }
        }
    }
}
