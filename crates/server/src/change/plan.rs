//! A plan: what a new configuration changes, whom it concerns, and what it would strand. Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sluice_domain::config::{Config, Revision};
use sluice_ledger::PinnedRecord;
use utoipa::ToSchema;

use super::stranded::{Reached, Stranded, stranded};
use crate::config::{self, Difference, Files};

mod note;

/// One of the two configurations.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Its files.
    pub files: &'a Files,
    /// What they mean; `None` for an older one that does not compile here.
    pub config: Option<&'a Config>,
}

/// What the ledger holds that a change may concern.
#[derive(Clone, Debug, Default)]
pub struct LedgerUsage {
    /// Live jobs and dead letters, by what they need.
    pub pinned: Vec<PinnedRecord>,
    /// Which destinations the workers of their revisions reach.
    pub reached: Reached,
    /// How many events each source has sent in the last seven days.
    pub accepted: BTreeMap<String, u64>,
}

/// What a new configuration changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// Names this plan; `apply` takes it. Three parts: the revision in force, the new one, and what would change.
    pub plan: String,
    /// The revision that is in force.
    pub running: String,
    /// The revision that the new files are.
    pub new: String,
    /// What changes.
    pub changes: Vec<PlanChange>,
    /// Jobs that are live or wait for a person, by worker and revision, as far as something changes for them.
    pub affected: Vec<Affected>,
    /// What jobs still need and would not have any more. Not empty: the plan is refused unless that is allowed.
    pub stranded: Vec<Stranded>,
    /// Warnings about the new configuration.
    pub warnings: Vec<String>,
}

/// A thing that changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanChange {
    /// flow, worker, queue, destination or another section; file for anything else.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// added, removed or changed.
    pub change: String,
    /// The file that it stands in.
    pub file: String,
    /// What differs in it.
    pub fields: Vec<FieldView>,
    /// What that means for senders and jobs.
    pub notes: Vec<String>,
}

/// A key whose value changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FieldView {
    /// Where it stands.
    pub path: String,
    /// What was written; absent where nothing was.
    pub from: Option<String>,
    /// What is written now; absent where nothing is.
    pub to: Option<String>,
    /// What holds where nothing is written.
    pub default: Option<String>,
}

/// Jobs that a change concerns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Affected {
    /// Their worker.
    pub worker: String,
    /// The revision whose steps they do.
    pub revision: String,
    /// How many are live.
    pub live: u64,
    /// How many are dead letters or parked.
    pub dead_letters: u64,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.running == self.new
    }
}

/// What names a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanHash {
    /// The beginning of the revision in force.
    pub running: String,
    /// The beginning of the new revision.
    pub new: String,
    /// A digest of both and of what would change.
    pub changes: String,
}

/// How much of a revision's name stands in a plan's.
const REVISION_DIGITS: usize = 8;
const CHANGES_DIGITS: usize = 12;

impl PlanHash {
    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<PlanHash> {
        let hexadecimal = |part: &str| part.chars().all(|c| c.is_ascii_hexdigit());
        let mut parts = text.trim().split('-').map(str::to_ascii_lowercase);
        let hash = PlanHash { running: parts.next()?, new: parts.next()?, changes: parts.next()? };
        let lengths = [hash.running.len(), hash.new.len(), hash.changes.len()];
        let whole = lengths == [REVISION_DIGITS, REVISION_DIGITS, CHANGES_DIGITS] && parts.next().is_none();
        (whole && [&hash.running, &hash.new, &hash.changes].iter().all(|part| hexadecimal(part))).then_some(hash)
    }

    /// Counts of jobs are no part of it: they change all the time, and what a plan does is the same.
    fn of(running: &Revision, new: &Revision, changes: &[Difference], stranded: &[Stranded]) -> PlanHash {
        let told: Vec<(String, String)> = [("revisions".to_owned(), format!("{} {}", running.0, new.0))]
            .into_iter()
            .chain(changes.iter().map(|change| ("change".to_owned(), format!("{change:?}"))))
            .chain(stranded.iter().map(|thing| ("stranded".to_owned(), format!("{} {}", thing.kind, thing.name))))
            .collect();
        let digest = Revision::of(told.iter().map(|(what, text)| (what.as_str(), text.as_str()))).0;
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

/// Compares the configuration in force with a new one.
pub fn plan(before: Side<'_>, after: (&Files, &Config), subject: &LedgerUsage) -> Plan {
    let (new_files, new_config) = after;
    let running = Revision::of(before.files.iter());
    let new = Revision::of(new_files.iter());
    let differences = config::differences(&config::things(before.files), &config::things(new_files));
    let stranded = stranded(before.config, new_config, &subject.pinned, &subject.reached);
    let plan = PlanHash::of(&running, &new, &differences, &stranded).to_string();
    let changes: Vec<PlanChange> = differences
        .into_iter()
        .map(|difference| {
            let notes = note::notes(&difference, before.config, new_config, subject);
            view(difference, notes)
        })
        .collect();
    let affected = affected(&changes, &subject.pinned);
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

/// The jobs of every worker that changes, or whose queue does.
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
