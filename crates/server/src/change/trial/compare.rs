//! Compares what two configurations make of one request, and counts the differences.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use sluice_domain::event::{Event, EventId};
use sluice_domain::mask;

use super::report::{
    ContactTrial, FieldDifferenceRow, JobDifference, OutcomeDifference, Sample, TrialReport, WarningDifference,
    WriteDifference,
};
use super::rows::{Balances, CountedContacts, Row, Rows};

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    /// Of this event.
    Duplicate(EventId),
    /// With the code.
    Quarantined(String),
    Refused(String),
    /// No flow takes it.
    NoFlow,
}

impl Outcome {
    fn label(&self) -> String {
        match self {
            Outcome::Accepted => "accepted".to_owned(),
            Outcome::Duplicate(_) => "duplicate".to_owned(),
            Outcome::Quarantined(code) => format!("quarantined: {code}"),
            Outcome::Refused(code) => format!("refused: {code}"),
            Outcome::NoFlow => "no flow".to_owned(),
        }
    }
}

/// What a configuration makes of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestResult {
    pub outcome: Outcome,
    /// Empty if there is none.
    pub key: String,
    /// Of an accepted or quarantined request.
    pub event: Option<Event>,
    /// Workers that get a job, ordered.
    pub workers: Vec<String>,
    /// Calls whose requests do not depend on answers of destinations.
    pub calls: Vec<PlannedCall>,
}

/// A request to a destination.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedCall {
    pub worker: String,
    pub step: String,
    /// Members of its body, its `method` and `url`; `fails` if it cannot be made.
    pub fields: BTreeMap<String, Value>,
}

/// A request under both configurations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared<'a> {
    pub flow: &'a str,
    /// The stored event.
    pub id: EventId,
    /// Digest of the person or thing that the event is about.
    pub contact: u64,
    pub before: &'a RequestResult,
    pub after: &'a RequestResult,
}

/// Differences so far. Bounded in memory, whatever senders send.
#[derive(Clone, Debug, Default)]
pub(crate) struct Comparison {
    events: u64,
    different: u64,
    other_keys: u64,
    outcomes: Rows<(String, String, String)>,
    jobs: Balances<(String, String)>,
    fields: Rows<(String, String)>,
    writes: Rows<(String, String, String)>,
    warnings: Balances<(String, String, String)>,
    contacts: CountedContacts,
}

impl Comparison {
    pub(crate) fn add(&mut self, compared: Compared<'_>) {
        self.events += 1;
        let (before, after) = (compared.before, compared.after);
        let mut differs = before.key != after.key;
        self.other_keys += u64::from(differs);
        differs |= self.add_outcome(compared);
        differs |= self.add_jobs(compared);
        if let (Some(old), Some(new)) = (&before.event, &after.event) {
            differs |= self.add_fields(compared, old, new);
            differs |= self.add_warnings(compared.flow, old, new);
        }
        differs |= self.add_calls(compared);
        self.different += u64::from(differs);
    }

    fn add_outcome(&mut self, compared: Compared<'_>) -> bool {
        let (before, after) = (compared.before, compared.after);
        let (old, new) = (before.outcome.label(), after.outcome.label());
        if old == new {
            return false;
        }
        let shown = |result: &RequestResult| match &result.outcome {
            Outcome::Duplicate(first) => format!("a duplicate of {first}"),
            _ if result.key.is_empty() => "no key".to_owned(),
            _ => mask::sample("key", &Value::String(result.key.clone())),
        };
        let sample = || Sample { event: compared.id.to_string(), before: shown(before), after: shown(after) };
        self.outcomes.add((compared.flow.to_owned(), old, new), false, sample);
        true
    }

    fn add_jobs(&mut self, compared: Compared<'_>) -> bool {
        let (before, after) = (&compared.before.workers, &compared.after.workers);
        if before == after {
            return false;
        }
        let key = |worker: &String| (compared.flow.to_owned(), worker.clone());
        let count = |workers: &[String], worker: &String| workers.iter().filter(|other| *other == worker).count();
        let all: BTreeSet<&String> = before.iter().chain(after).collect();
        for worker in all {
            let (old, new) = (count(before, worker), count(after, worker));
            (old..new).for_each(|_| self.jobs.more(key(worker)));
            (new..old).for_each(|_| self.jobs.fewer(key(worker)));
        }
        true
    }

    fn add_fields(&mut self, compared: Compared<'_>, old: &Event, new: &Event) -> bool {
        let text = |text: &str| Some(Value::String(text.to_owned()));
        let time = |event: &Event| event.occurred_at.map(|at| Value::String(at.to_string()));
        let mut differing: Vec<(String, Option<Value>, Option<Value>)> = Vec::new();
        let single = [
            ("event_type", text(&old.event_type), text(&new.event_type)),
            ("event_id", text(&old.event_id), text(&new.event_id)),
            ("occurred_at", time(old), time(new)),
            ("schema_version", text(&old.schema_version), text(&new.schema_version)),
        ];
        let single = single.into_iter().filter(|(_, old, new)| old != new);
        differing.extend(single.map(|(name, old, new)| (name.to_owned(), old, new)));
        let sections = [
            ("identity", &old.identity, &new.identity),
            ("attributes", &old.attributes, &new.attributes),
            ("routing", &old.routing, &new.routing),
        ];
        for (section, old, new) in sections {
            differing.extend(members(old, new).map(|(name, old, new)| (format!("{section}.{name}"), old, new)));
        }
        for (field, old, new) in &differing {
            // Senders may choose the names.
            let key = (compared.flow.to_owned(), mask::text(field).into_owned());
            let is_new = self.contacts.is_new(("field", &key), compared.contact);
            self.fields.add(key, is_new, || compared.sample(field, old.as_ref(), new.as_ref()));
        }
        !differing.is_empty()
    }

    fn add_warnings(&mut self, flow: &str, old: &Event, new: &Event) -> bool {
        let (old, new) = (&old.audit.warnings, &new.audit.warnings);
        let key = |warning: &sluice_domain::event::MappingWarning| {
            (flow.to_owned(), warning.field.clone(), warning.code.as_str().to_owned())
        };
        for warning in new.iter().filter(|warning| !old.contains(warning)) {
            self.warnings.more(key(warning));
        }
        for warning in old.iter().filter(|warning| !new.contains(warning)) {
            self.warnings.fewer(key(warning));
        }
        old != new
    }

    /// A worker without a job on one side is counted among the jobs; its calls are not counted again.
    fn add_calls(&mut self, compared: Compared<'_>) -> bool {
        let (before, after) = (compared.before, compared.after);
        let is_on_both =
            |call: &&PlannedCall| before.workers.contains(&call.worker) && after.workers.contains(&call.worker);
        let by_step = |result: &'_ RequestResult| -> BTreeMap<(String, String), BTreeMap<String, Value>> {
            let calls = result.calls.iter().filter(is_on_both);
            calls.map(|call| ((call.worker.clone(), call.step.clone()), call.fields.clone())).collect()
        };
        if before.calls == after.calls {
            return false;
        }
        let (old, new) = (by_step(before), by_step(after));
        let steps: BTreeSet<&(String, String)> = old.keys().chain(new.keys()).collect();
        let mut differs = false;
        for place in steps {
            let none = BTreeMap::new();
            let (old, new) = match (old.get(place), new.get(place)) {
                (Some(old), Some(new)) => (old.clone(), new.clone()),
                (old, new) => (call_made(old.is_some(), &none), call_made(new.is_some(), &none)),
            };
            let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            for name in names.into_iter().filter(|name| old.get(*name) != new.get(*name)) {
                differs = true;
                let key = (place.0.clone(), place.1.clone(), mask::text(name).into_owned());
                let is_new = self.contacts.is_new(("write", &key), compared.contact);
                self.writes.add(key, is_new, || compared.sample(name, old.get(name), new.get(name)));
            }
        }
        differs
    }

    /// The report, with what was counted elsewhere left at its default.
    pub(crate) fn into_report(self, contacts: Option<ContactTrial>) -> TrialReport {
        let left_out = [self.outcomes.left_out, self.jobs.left_out, self.fields.left_out];
        let left_out: u64 = left_out.iter().sum::<u64>() + self.writes.left_out + self.warnings.left_out;
        let outcome = |((flow, before, after), row): (_, Row)| OutcomeDifference {
            flow,
            before,
            after,
            events: row.events,
            samples: row.samples,
        };
        let write = |((worker, step, field), row): (_, Row)| {
            let Row { events, contacts, samples } = row;
            WriteDifference { worker, step, field, events, contacts, samples }
        };
        let warning = |((flow, field, code), (more, fewer))| WarningDifference { flow, field, code, more, fewer };
        TrialReport {
            events: self.events,
            different: self.different,
            other_keys: self.other_keys,
            outcomes: self.outcomes.sorted().into_iter().map(outcome).collect(),
            jobs: self
                .jobs
                .sorted()
                .into_iter()
                .map(|((flow, worker), (more, fewer))| JobDifference { flow, worker, more, fewer })
                .collect(),
            fields: field_rows(self.fields),
            writes: self.writes.sorted().into_iter().map(write).collect(),
            warnings: self.warnings.sorted().into_iter().map(warning).collect(),
            contacts,
            left_out,
            contacts_at_least: self.contacts.is_full,
            ..TrialReport::default()
        }
    }
}

pub(super) fn field_rows(rows: Rows<(String, String)>) -> Vec<FieldDifferenceRow> {
    let row = |((flow, field), row): (_, Row)| FieldDifferenceRow {
        flow,
        field,
        events: row.events,
        contacts: row.contacts,
        samples: row.samples,
    };
    rows.sorted().into_iter().map(row).collect()
}

/// A call of which only one side has any.
fn call_made(is_made: bool, none: &BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    let mut fields = none.clone();
    fields.insert("call".to_owned(), Value::String(if is_made { "made" } else { "not made" }.to_owned()));
    fields
}

/// Members that differ.
fn members<'a>(
    old: &'a Map<String, Value>,
    new: &'a Map<String, Value>,
) -> impl Iterator<Item = (&'a String, Option<Value>, Option<Value>)> {
    let changed = old.iter().filter(|(name, value)| new.get(*name) != Some(value));
    let changed = changed.map(|(name, value)| (name, Some(value.clone()), new.get(name).cloned()));
    let added = new.iter().filter(|(name, _)| !old.contains_key(*name));
    changed.chain(added.map(|(name, value)| (name, None, Some(value.clone()))))
}

/// The part of a URL that differs from another one, from the last common slash on.
fn differing_part(url: &str, other: &str) -> String {
    let common = url.char_indices().zip(other.chars()).take_while(|((_, a), b)| a == b).map(|((at, _), _)| at);
    let slash = common.filter(|at| url[*at..].starts_with('/')).last();
    slash.map_or_else(|| url.to_owned(), |at| format!("…{}", &url[at..]))
}

impl Compared<'_> {
    fn sample(&self, field: &str, before: Option<&Value>, after: Option<&Value>) -> Sample {
        if let ("url", Some(Value::String(old)), Some(Value::String(new))) = (field, before, after) {
            let part = |url: &str, other: &str| shown(field, Some(&Value::String(differing_part(url, other))));
            return Sample { event: self.id.to_string(), before: part(old, new), after: part(new, old) };
        }
        Sample { event: self.id.to_string(), before: shown(field, before), after: shown(field, after) }
    }
}

pub(super) fn shown(field: &str, value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| mask::sample(field, value))
}
