//! The reference page of the language, made from the tables that the reader uses.

use std::fmt::Write;

use sluice_domain::verify::Scheme;

use super::pages::{POLICIES, STEPS};
use super::table::{Absent, SectionSpec};
use super::{
    body, destination, destination_kinds, document, event, flow, foreach, key, policy, queue, retry, safe_mode, step,
    trigger, verify, worker,
};

/// Every table, in the order of the page.
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

A configuration is a directory of YAML or JSON files. `sluice check` reads it and reports every problem. Workers and their steps have a
[page of their own](steps.md), and so have [actions](actions.md), [expressions](expressions.md) and [policies](policies.md). Editors can use the
[JSON Schema](sluice.schema.json).

- Durations are written `250ms`, `90s`, `15m`, `48h`, `7d`; sizes `64KiB`, `1MiB`; rates `5/min`, `100/s`, `20/10s`.
- `{{ … }}` holds an [expression](expressions.md). It may stand without quotes, as long as it ends on the line it begins on.
- `${secrets.NAME}` stands for a secret: the environment variable `SLUICE_SECRET_NAME`, then `NAME`, then the file `secrets/NAME`.
  Secrets stand in `verify:`, in `destinations:`, under `with:` and in a script's `env:`, and nowhere in plain text.
";

/// The page, in Markdown.
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

/// `a retry policy` is `Retry policy` in a heading.
fn heading(title: &str) -> String {
    let words = ["a ", "an ", "the ", "any "].iter().find_map(|article| title.strip_prefix(article)).unwrap_or(title);
    let mut characters = words.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

pub(super) fn write_table(page: &mut String, table: &SectionSpec) {
    let _ = write!(
        page,
        "\n## {}\n\n{}\n\n| key | value | when left out | meaning |\n|---|---|---|---|\n",
        heading(table.title),
        table.about
    );
    for key in table.keys {
        let absent = match key.default {
            Absent::Required => "must be there",
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
        let _ = writeln!(page, "\nNot supported by this version yet: {}.", later.join(", "));
    }
}

/// A bar would end the cell.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table::ValueType;

    #[test]
    fn every_table_that_a_key_points_to_is_on_the_page() {
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
