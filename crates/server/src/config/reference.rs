//! Generates the configuration reference page from the section specs.

use std::fmt::Write;

use sluice_domain::verify::Scheme;

use super::pages::{POLICIES, STEPS};
use super::table::{Absent, SectionSpec};
use super::{
    body, destination, destination_kinds, document, event, flow, foreach, key, policy, queue, retry, safe_mode, step,
    trigger, verify, worker,
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
        &flow::FLOW_STEP,
        &flow::ENQUEUE,
        &flow::RESPONSES,
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
        &queue::QUEUE,
        &destination::DESTINATION,
        &destination::BREAKER,
        &destination::HTTP,
        &destination::HTTP_AUTH,
        &destination::BASIC,
        &destination::SALESFORCE,
        &destination::SALESFORCE_AUTH,
        &destination_kinds::POSTGRES,
        &destination_kinds::SMTP,
        &destination_kinds::SLACK,
        &destination_kinds::SCRIPT,
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
    page.push_str("\n## Verification schemes\n\n");
    let names: Vec<String> = Scheme::ALL.iter().map(|scheme| format!("`{scheme}`")).collect();
    let _ = writeln!(page, "{}.", names.join(", "));
    page
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
