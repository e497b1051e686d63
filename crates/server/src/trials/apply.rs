//! Applies two configurations to the same stored requests, with the code of the intake and the verbs of the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sluice_domain::contact::{ContactId, ContactState, WriteSlot};
use sluice_domain::event::EventId;
use sluice_domain::flow::Flow;
use sluice_domain::pseudonym::PseudonymKey;
use sluice_domain::time::Time;
use sluice_ledger::memory::Store;
use sluice_ledger::{Acceptance, EventBody, EventRecord, NewJob, StoredEvent};

use super::TrialInput;
use crate::change::{Compared, Comparison, ContactPairs, Outcome, PlannedCall, RequestResult, TrialReport};
use crate::dry_run::{self, Cover, DryRunInput};
use crate::intake::{self, RequestMeta};
use crate::revisions::LoadedRevision;

/// Contacts of either configuration that are compared: about 2 KiB for each.
const CONTACTS_MAX: usize = 25_000;
/// Depth of the members of a request body that are compared one by one.
const DEPTH_MAX: usize = 4;

/// A trial in progress.
#[derive(Debug)]
pub(super) struct TrialRun {
    before: TrialSide,
    after: TrialSide,
    only_flows_differ: bool,
    comparison: Comparison,
    contacts: ContactPairs,
    bodies_removed: u64,
    unreadable: u64,
}

/// A stored request.
struct StoredRequest<'a> {
    event: &'a EventRecord,
    received_at: Time,
    body: &'a EventBody,
}

impl TrialRun {
    pub(super) fn new(input: TrialInput, pseudonyms: PseudonymKey) -> TrialRun {
        TrialRun {
            before: TrialSide::new(input.active, pseudonyms.clone()),
            after: TrialSide::new(input.candidate, pseudonyms),
            only_flows_differ: input.only_flows_differ,
            comparison: Comparison::default(),
            contacts: ContactPairs::default(),
            bodies_removed: 0,
            unreadable: 0,
        }
    }

    /// Compares an event, and the requests that its key has dropped.
    pub(super) fn add(&mut self, stored: &StoredEvent) {
        let event = &stored.event;
        let flow_before = self.before.flow(&event.flow, None).cloned();
        let flow_after = self.after.flow(&event.flow, flow_before.as_deref()).cloned();
        if flow_before.is_none() && flow_after.is_none() {
            // Not from a sender: alerts, schedules, steps that enqueue.
            return;
        }
        let Some(body) = stored.body.as_ref().filter(|body| !body.is_removed()) else {
            self.bodies_removed += 1;
            return;
        };
        let dropped = stored.dropped.iter().filter_map(|variant| Some((variant.received_at, variant.body.as_ref()?)));
        for (received_at, body) in std::iter::once((event.received_at, body)).chain(dropped) {
            self.compare(&StoredRequest { event, received_at, body }, flow_before.as_deref(), flow_after.as_deref());
        }
    }

    fn compare(&mut self, request: &StoredRequest<'_>, flow_before: Option<&Flow>, flow_after: Option<&Flow>) {
        let is_full = |side: &TrialSide| side.store.contact_count() >= CONTACTS_MAX;
        let with_contacts = !is_full(&self.before) && !is_full(&self.after);
        let before = self.before.apply(request, flow_before, with_contacts);
        let after = self.after.apply(request, flow_after, with_contacts);
        let (Ok(mut before), Ok(mut after)) = (before, after) else {
            self.unreadable += 1;
            return;
        };
        if with_contacts {
            self.contacts.add(request.event.id, before.contact, after.contact);
        } else {
            self.contacts.not_compared += 1;
        }
        let reads_body_of_flow = |flow: Option<&Flow>| {
            flow.is_some_and(|flow| flow.enqueue.iter().any(|enqueue| enqueue.body_from.is_some()))
        };
        let calls_are_equal = self.only_flows_differ
            && before.result.event == after.result.event
            && before.jobs == after.jobs
            && !reads_body_of_flow(flow_before)
            && !reads_body_of_flow(flow_after)
            && before.merged.is_none()
            && after.merged.is_none();
        if !calls_are_equal {
            before.result.calls = self.before.calls(&before, request.received_at);
            after.result.calls = self.after.calls(&after, request.received_at);
        }
        let entity = before.result.event.as_ref().or(after.result.event.as_ref()).map_or(0, |event| event.entity());
        self.comparison.add(Compared {
            flow: &request.event.flow,
            id: request.event.id,
            contact: before.contact.or(after.contact).map_or(entity, ContactId::entity),
            before: &before.result,
            after: &after.result,
        });
    }

    pub(super) fn into_report(self) -> TrialReport {
        let keeps_contacts = |side: &TrialSide| side.live.config.contacts.is_some();
        let contacts = (keeps_contacts(&self.before) || keeps_contacts(&self.after)).then(|| {
            let state = |side: &TrialSide, id| side.store.contact(id).map(|contact| contact.state);
            self.contacts.finish(|id| state(&self.before, id), |id| state(&self.after, id))
        });
        TrialReport {
            bodies_removed: self.bodies_removed,
            unreadable: self.unreadable,
            ..self.comparison.into_report(contacts)
        }
    }
}

/// One configuration, and the ledger that it would have written.
#[derive(Debug)]
struct TrialSide {
    live: Arc<LoadedRevision>,
    pseudonyms: PseudonymKey,
    /// Without bodies and jobs.
    store: Store,
    /// The stored events, by the sequence number here.
    ids: Vec<EventId>,
    no_body: Arc<EventBody>,
}

/// What a configuration makes of a request, and what its calls are made of.
struct Applied {
    result: RequestResult,
    contact: Option<ContactId>,
    /// Merged state of the contact, if a step writes it.
    merged: Option<ContactState>,
    jobs: Vec<NewJob>,
    record: Option<EventRecord>,
    body: Arc<EventBody>,
}

/// The request is not one of this flow.
struct Unreadable;

impl TrialSide {
    fn new(live: Arc<LoadedRevision>, pseudonyms: PseudonymKey) -> TrialSide {
        TrialSide { live, pseudonyms, store: Store::default(), ids: Vec::new(), no_body: Arc::default() }
    }

    /// The flow of this name; if there is none, the one with the method and path of `known`.
    fn flow(&self, name: &str, known: Option<&Flow>) -> Option<&Arc<Flow>> {
        let flows = &self.live.config.flows;
        let same_route =
            |known: &Flow| flows.values().find(|flow| flow.path == known.path && flow.method == known.method);
        flows.get(name).or_else(|| known.and_then(same_route))
    }

    fn apply(
        &mut self,
        request: &StoredRequest<'_>,
        flow: Option<&Flow>,
        with_contacts: bool,
    ) -> Result<Applied, Unreadable> {
        let Some(flow) = flow else { return Ok(self.nothing(Outcome::NoFlow, String::new())) };
        let arrival = RequestMeta {
            received_at: request.received_at,
            verified_by: request.event.verified_by.as_deref(),
            pseudonyms: Some(&self.pseudonyms),
            ..RequestMeta::default()
        };
        let live = self.live.clone();
        let prepared = match intake::prepare_stored(&live, flow, request.body, arrival) {
            Ok(prepared) => prepared,
            Err(intake::StoredProblem::Refused(problem)) => {
                return Ok(self.nothing(Outcome::Refused(problem.code.to_owned()), String::new()));
            }
            Err(intake::StoredProblem::Unreadable) => return Err(Unreadable),
        };
        let key = prepared.key.text.clone();
        let mut new = prepared.new;
        let record = new.record(request.event.id);
        let jobs = std::mem::take(&mut new.jobs);
        let body = std::mem::replace(&mut new.body, self.no_body.clone());
        let quarantine = new.quarantine.as_ref().map(|quarantine| quarantine.failure.code.clone());
        // The time of the signature is not stored, so signed content cannot be compared.
        new.signed_content = None;
        new.warnings.clear();
        new.observation = new.observation.filter(|_| with_contacts);
        let accepted = match self.store.accept(request.received_at, new) {
            Acceptance::Accepted(accepted) => accepted,
            Acceptance::Duplicate(first) => {
                let seq = self.store.find(first.id).and_then(|seq| usize::try_from(seq - 1).ok());
                let first = seq.and_then(|seq| self.ids.get(seq)).copied().unwrap_or(first.id);
                return Ok(self.nothing(Outcome::Duplicate(first), key));
            }
            Acceptance::ProofUsed => return Ok(self.nothing(Outcome::Refused("proof-replayed".to_owned()), key)),
        };
        self.ids.push(request.event.id);
        let outcome = match accepted.quarantined {
            true => Outcome::Quarantined(quarantine.unwrap_or_else(|| "key-clash".to_owned())),
            false => Outcome::Accepted,
        };
        let jobs = if accepted.quarantined { vec![] } else { jobs };
        let mut workers: Vec<String> = jobs.iter().map(|job| job.worker.to_string()).collect();
        workers.sort_unstable();
        let result = RequestResult { outcome, key, event: Some(prepared.event), workers, calls: vec![] };
        let contact = self.store.contact_id_of_event(accepted.seq);
        let merges = |job: &NewJob| {
            let worker = self.live.config.workers.get(&*job.worker);
            worker.is_some_and(|worker| worker.steps.iter().any(|step| step.merged.is_some()))
        };
        let merged = match contact.is_some() && jobs.iter().any(merges) {
            true => self.store.contact_of_event(accepted.seq, WriteSlot([0; 16])).map(|view| view.state),
            false => None,
        };
        Ok(Applied { result, contact, merged, jobs, record: Some(record), body })
    }

    fn nothing(&self, outcome: Outcome, key: String) -> Applied {
        let result = RequestResult { outcome, key, event: None, workers: vec![], calls: vec![] };
        let body = self.no_body.clone();
        Applied { result, contact: None, merged: None, jobs: vec![], record: None, body }
    }

    /// The requests that the jobs would send first, as far as they do not depend on answers.
    fn calls(&self, applied: &Applied, now: Time) -> Vec<PlannedCall> {
        let Some(event) = &applied.record else { return vec![] };
        let input = DryRunInput {
            live: &self.live,
            event,
            body: &applied.body,
            contact: applied.merged.as_ref(),
            pseudonyms: &self.pseudonyms,
            now,
            cover: Cover::Off,
        };
        let mut calls = Vec::new();
        for job in &applied.jobs {
            let report = dry_run::job(input, job);
            let call = |step: String, fields| PlannedCall { worker: report.worker.clone(), step, fields };
            if let Some(problem) = report.problem {
                calls.push(call(String::new(), fails(problem)));
            }
            for step in report.steps {
                let is_refused = step.policies.iter().any(|rule| rule.verdict == "refuses");
                let fields = match (step.problem, step.request) {
                    (Some(problem), _) => fails(problem),
                    (None, Some(request)) if !is_refused => {
                        let mut fields = BTreeMap::new();
                        flatten("", request.body, DEPTH_MAX, &mut fields);
                        fields.insert("method".to_owned(), Value::String(request.method));
                        fields.insert("url".to_owned(), Value::String(request.url));
                        fields
                    }
                    _ => continue,
                };
                calls.push(call(step.step, fields));
            }
        }
        calls
    }
}

fn fails(problem: String) -> BTreeMap<String, Value> {
    BTreeMap::from([("fails".to_owned(), Value::String(problem))])
}

/// Members by their paths.
fn flatten(path: &str, value: Value, depth: usize, fields: &mut BTreeMap<String, Value>) {
    match value {
        Value::Null if path.is_empty() => {}
        Value::Object(members) if depth > 0 => {
            for (name, member) in members {
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(&path, member, depth - 1, fields);
            }
        }
        other => {
            fields.insert(if path.is_empty() { "body".to_owned() } else { path.to_owned() }, other);
        }
    }
}
