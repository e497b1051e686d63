//! Plan: changes of a new configuration, affected jobs and stranded jobs. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sluice_domain::config::{Config, Revision};
use sluice_ledger::PinnedRecord;
use utoipa::ToSchema;

use super::stranded::{Reached, Stranded, stranded};
use crate::config::{self, Difference, Files};

mod note;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Side<'a> {
    pub files: &'a Files,
    /// `None` for an older revision that no longer compiles.
    pub config: Option<&'a Config>,
}

/// Ledger state that a change may affect.
#[derive(Clone, Debug, Default)]
pub(crate) struct LedgerUsage {
    /// Live jobs and dead letters by worker, queue and revision.
    pub pinned: Vec<PinnedRecord>,
    /// Destinations of the workers of their revisions.
    pub reached: Reached,
    /// Events per source in the last seven days.
    pub accepted: BTreeMap<String, u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Plan id for `apply`: active revision, new revision, and digest of the changes.
    pub plan: String,
    /// Active revision.
    pub running: String,
    /// Revision of the new files.
    pub new: String,
    pub changes: Vec<PlanChange>,
    /// Live jobs and dead letters affected by the change, by worker and revision.
    pub affected: Vec<Affected>,
    /// Removed resources that jobs need. If not empty, the plan is rejected unless that is allowed.
    pub stranded: Vec<Stranded>,
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanChange {
    /// flow, worker, queue, destination or another section; file otherwise.
    pub kind: String,
    pub name: String,
    /// added, removed or changed.
    pub change: String,
    pub file: String,
    pub fields: Vec<FieldView>,
    /// Consequences for senders and jobs.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldView {
    pub path: String,
    /// Old value; absent if the key was.
    pub from: Option<String>,
    /// New value; absent if the key is.
    pub to: Option<String>,
    /// Default of the key.
    pub default: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Affected {
    pub worker: String,
    /// Revision they were accepted under.
    pub revision: String,
    pub live: u64,
    /// Dead and unknown jobs.
    pub dead_letters: u64,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.running == self.new
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlanHash {
    /// Prefix of the active revision.
    pub running: String,
    /// Prefix of the new revision.
    pub new: String,
    /// Digest of both revisions and the changes.
    pub changes: String,
}

/// Length of the revision prefix in a plan id.
const REVISION_DIGITS: usize = 8;
const CHANGES_DIGITS: usize = 12;

impl PlanHash {
    /// Reads what [`fmt::Display`] writes.
    pub(crate) fn parse(text: &str) -> Option<PlanHash> {
        let hexadecimal = |part: &str| part.chars().all(|c| c.is_ascii_hexdigit());
        let mut parts = text.trim().split('-').map(str::to_ascii_lowercase);
        let hash = PlanHash { running: parts.next()?, new: parts.next()?, changes: parts.next()? };
        let lengths = [hash.running.len(), hash.new.len(), hash.changes.len()];
        let whole = lengths == [REVISION_DIGITS, REVISION_DIGITS, CHANGES_DIGITS] && parts.next().is_none();
        (whole && [&hash.running, &hash.new, &hash.changes].iter().all(|part| hexadecimal(part))).then_some(hash)
    }

    /// Excludes job counts, which change all the time.
    fn of(running: &Revision, new: &Revision, changes: &[Difference], stranded: &[Stranded]) -> PlanHash {
        let parts: Vec<(String, String)> = [("revisions".to_owned(), format!("{} {}", running.0, new.0))]
            .into_iter()
            .chain(changes.iter().map(|change| ("change".to_owned(), format!("{change:?}"))))
            .chain(stranded.iter().map(|thing| ("stranded".to_owned(), format!("{} {}", thing.kind, thing.name))))
            .collect();
        let digest = Revision::of(parts.iter().map(|(what, text)| (what.as_str(), text.as_str()))).0;
        let cut = |text: &str, length| text.chars().take(length).collect();
        PlanHash {
            running: cut(&running.0, REVISION_DIGITS),
            new: cut(&new.0, REVISION_DIGITS),
            changes: cut(&digest, CHANGES_DIGITS),
        }
    }
}

impl fmt::Display for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.running, self.new, self.changes)
    }
}

/// Compares the active configuration with a new one.
pub(crate) fn plan(before: Side<'_>, after: (&Files, &Config), usage: &LedgerUsage) -> Plan {
    let (new_files, new_config) = after;
    let running = Revision::of(before.files.iter());
    let new = Revision::of(new_files.iter());
    let differences = config::differences(&config::resources(before.files), &config::resources(new_files));
    let stranded = stranded(before.config, new_config, &usage.pinned, &usage.reached);
    let plan = PlanHash::of(&running, &new, &differences, &stranded).to_string();
    let changes: Vec<PlanChange> = differences
        .into_iter()
        .map(|difference| {
            let notes = note::notes(&difference, before.config, new_config, usage);
            view(difference, notes)
        })
        .collect();
    let affected = affected(&changes, &usage.pinned);
    Plan { plan, running: running.0, new: new.0, changes, affected, stranded, warnings: vec![] }
}

fn view(difference: Difference, notes: Vec<String>) -> PlanChange {
    let change = match (difference.before, difference.after) {
        (false, _) => "added",
        (_, false) => "removed",
        _ => "changed",
    };
    let field = |field: config::FieldDifference| FieldView {
        path: field.path,
        from: field.from,
        to: field.to,
        default: field.default.map(str::to_owned),
    };
    let (kind, name) = difference.thing;
    let fields = difference.fields.into_iter().map(field).collect();
    PlanChange { kind, name, change: change.to_owned(), file: difference.file, fields, notes }
}

/// Jobs of every changed worker or queue.
fn affected(changes: &[PlanChange], pinned: &[PinnedRecord]) -> Vec<Affected> {
    let touches = |record: &PinnedRecord| {
        changes.iter().any(|change| match change.kind.as_str() {
            "worker" => change.name == record.worker,
            "queue" => change.name == record.queue || Some(change.name.as_str()) == record.dead_letter_queue.as_deref(),
            _ => false,
        })
    };
    let mut found: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    for record in pinned.iter().filter(|record| touches(record)) {
        let count = found.entry((&record.worker, &record.revision)).or_default();
        count.0 += record.live;
        count.1 += record.parked;
    }
    let tell = |((worker, revision), (live, dead_letters)): ((&str, &str), _)| Affected {
        worker: worker.to_owned(),
        revision: revision.to_owned(),
        live,
        dead_letters,
    };
    found.into_iter().map(tell).collect()
}

#[cfg(test)]
mod tests;
