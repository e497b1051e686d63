//! The identity of a quarantined event, from the lookups that its workers begin with.
//!
//! An event without an identity is a dead letter from the start, so none of its jobs runs. If a worker of it begins with lookups whose
//! outputs supply an identity, these alone are made: [`IdentitySearch::start`] and [`IdentitySearch::looked_up`] answer with one
//! [`SearchCommand`], until the search has ended. What was looked up is recorded with the release, under the effect keys of the steps:
//! the released job finds it there and looks nothing up again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::internal::lookup;
use super::item::holds;
use super::{ConfigRevision, scope_of};
use crate::contact::{ContactRules, Observation, SuppliedBy, awaits_identity, look_up_again_after};
use crate::enrich::{Lookup, LookupResult};
use crate::event::{Event, LossCode, MappingWarning, scalar};
use crate::job::{EffectKey, EffectState, Term};
use crate::key::KeyDigest;
use crate::ops::{Fence, StepResult, StepWarning};
use crate::record::{EventBody, EventRecord, JobRecord};
use crate::template::Scope;
use crate::time::Time;
use crate::trace::RunTrace;
use crate::worker::{Step, Worker};

/// A quarantined event as the ledger has it.
#[derive(Clone, Debug)]
pub struct QuarantinedEvent {
    pub event: Arc<EventRecord>,
    pub body: Arc<EventBody>,
    pub jobs: Vec<JobRecord>,
}

/// What is done next for an event.
#[derive(Debug)]
pub enum SearchCommand {
    /// Make a lookup, under the revision of the event.
    LookUp(Box<Lookup>),
    /// Release the event.
    Release(Box<FoundIdentity>),
    /// There is nothing to release. `because` is a code: `absent`, that of a warning, or why nothing was looked up.
    End { because: &'static str, may_pass: bool },
}

/// An identity that a lookup has found.
#[derive(Debug)]
pub struct FoundIdentity {
    /// What the event says with the identity.
    pub observation: Observation,
    /// Identity fields in normalized form.
    pub identity: Map<String, Value>,
    pub by: SuppliedBy,
    pub mapping_version: String,
    /// Digest of the person.
    pub contact: Option<KeyDigest>,
    /// Outputs of the lookups that were made for the job.
    pub outputs: Vec<StepResult>,
}

/// A lookup that was made, for metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeLookup {
    pub action: &'static str,
    pub result: &'static str,
}

/// The search of one event.
#[derive(Debug)]
pub struct IdentitySearch {
    revision: ConfigRevision,
    rules: Arc<ContactRules>,
    event: Arc<EventRecord>,
    body: Arc<EventBody>,
    normalized: Event,
    term: Term,
    at: Time,
    /// Jobs that wait, whose workers can supply an identity.
    jobs: VecDeque<(JobRecord, Arc<Worker>)>,
    current: Option<JobSearch>,
    /// The last reason for which nothing was found.
    because: &'static str,
    may_pass: bool,
    made: Vec<MadeLookup>,
}

/// The lookups of one job.
#[derive(Debug)]
struct JobSearch {
    job: JobRecord,
    worker: Arc<Worker>,
    scope: Scope,
    place: usize,
    outputs: Vec<StepResult>,
}

impl IdentitySearch {
    /// Starts the search. `Err` is the reason if the event has none.
    pub fn start(
        quarantined: QuarantinedEvent,
        revision: ConfigRevision,
        term: Term,
        at: Time,
    ) -> Result<(IdentitySearch, SearchCommand), &'static str> {
        let QuarantinedEvent { event, body, jobs } = quarantined;
        let rules = revision.config.contacts.clone().ok_or("contacts-not-kept")?;
        if body.is_removed() {
            return Err("body-removed");
        }
        let normalized: Event = serde_json::from_str(&body.normalized).map_err(|_| "unreadable")?;
        let supplies = |job: JobRecord| {
            let worker = revision.config.workers.get(&*job.worker)?;
            (!worker.identity_lookups().is_empty()).then(|| (job, worker.clone()))
        };
        let jobs: VecDeque<_> = jobs.into_iter().filter(awaits_identity).filter_map(supplies).collect();
        if jobs.is_empty() {
            return Err("not-waiting");
        }
        let mut search = IdentitySearch {
            revision,
            rules,
            event,
            body,
            normalized,
            term,
            at,
            jobs,
            current: None,
            because: "absent",
            may_pass: false,
            made: vec![],
        };
        let command = search.next_job();
        Ok((search, command))
    }

    /// Continues with the answer to a lookup.
    pub fn looked_up(&mut self, result: &LookupResult) -> SearchCommand {
        match self.current.take() {
            Some(job) => self.answered(job, result),
            None => self.next_job(),
        }
    }

    /// Lookups that were made since the last call.
    pub fn take_made(&mut self) -> Vec<MadeLookup> {
        std::mem::take(&mut self.made)
    }

    fn next_job(&mut self) -> SearchCommand {
        while let Some((job, worker)) = self.jobs.pop_front() {
            match scope_of(&self.revision, &self.event, &self.body, &job.queue) {
                Ok(mut scope) => {
                    scope.set("safe_mode", Value::Bool(false));
                    return self.next_lookup(JobSearch { job, worker, scope, place: 0, outputs: vec![] });
                }
                Err(_) => self.because = "unreadable",
            }
        }
        SearchCommand::End { because: self.because, may_pass: self.may_pass }
    }

    /// From the place where a job stands to its next lookup.
    fn next_lookup(&mut self, mut job: JobSearch) -> SearchCommand {
        while let Some(step) = job.worker.identity_lookups().get(job.place).cloned() {
            if !holds(&step, &job.scope).unwrap_or(false) {
                job.place += 1;
                continue;
            }
            match self.lookup(&step, &job) {
                Ok(lookup) => {
                    self.current = Some(job);
                    return SearchCommand::LookUp(Box::new(lookup));
                }
                Err(result) => return self.answered(job, &result),
            }
        }
        self.next_job()
    }

    /// The lookup of a step. `Err` is its result if none has to be made.
    fn lookup(&self, step: &Step, job: &JobSearch) -> Result<Lookup, LookupResult> {
        let unusable = |problem| LookupResult::failed(LossCode::LookupFailed, format!("with: {problem}"));
        let with = step.render_with(&job.scope, &*self.revision.secrets).map_err(unusable)?;
        let mut lookup = lookup(step, &with, &job.scope)?;
        if let Lookup::Http(http) = &mut lookup {
            http.effect_key = self.key(step, job).to_string();
            http.traceparent = RunTrace::new(&self.event, &job.job).call(job.job.id, 1).to_string();
        }
        Ok(lookup)
    }

    fn key(&self, step: &Step, job: &JobSearch) -> EffectKey {
        EffectKey::new(self.event.id, &job.job.worker, &step.label(0, None))
    }

    fn answered(&mut self, mut job: JobSearch, result: &LookupResult) -> SearchCommand {
        let Some(step) = job.worker.identity_lookups().get(job.place).cloned() else { return self.next_job() };
        self.made.push(MadeLookup { action: step.action.name(), result: result.as_str() });
        if !matches!(result, LookupResult::Found(_)) {
            self.because = result.as_str();
            self.may_pass |= result.failure().is_some_and(|failure| failure.code.may_pass());
        }
        let recorded = self.recorded(&step, &job, result);
        job.outputs.push(recorded);
        job.scope.set_step_output(step.id.clone(), result.output());
        match self.identity(&step, &job) {
            Some(found) => SearchCommand::Release(Box::new(FoundIdentity { outputs: job.outputs, ..found })),
            None => {
                job.place += 1;
                self.next_lookup(job)
            }
        }
    }

    /// What the step supplies, if it identifies a contact.
    fn identity(&mut self, step: &Step, job: &JobSearch) -> Option<FoundIdentity> {
        let value = |(field, template): &(String, crate::template::Template)| {
            let value = template.render(&job.scope, &*self.revision.secrets).ok().flatten()?;
            Some((field.clone(), scalar(&value)?))
        };
        let found: BTreeMap<String, String> = step.identity.iter().filter_map(value).collect();
        if found.is_empty() {
            return None;
        }
        let Some((observation, identity)) = self.rules.supply_found(&self.normalized, &found) else {
            self.because = "identity-unusable";
            return None;
        };
        let mut identified = self.normalized.clone();
        identified.identity.extend(identity.clone());
        Some(FoundIdentity {
            observation,
            identity,
            by: SuppliedBy::Enrichment { worker: job.job.worker.to_string(), step: step.id.to_string() },
            mapping_version: self.normalized.audit.mapping_version.clone(),
            contact: identified.contact(),
            outputs: vec![],
        })
    }

    fn recorded(&self, step: &Step, job: &JobSearch, result: &LookupResult) -> StepResult {
        let warning = result.failure().map(|failure| {
            let warning = MappingWarning { field: format!("steps.{}", step.id), code: failure.code };
            Box::new(StepWarning { source: self.event.source.clone(), warning })
        });
        StepResult {
            job: job.job.id,
            n: job.job.attempts_total,
            fence: Fence { owner: self.term, expected: job.job.term },
            step: u32::try_from(job.place).unwrap_or(u32::MAX),
            step_id: step.label(0, None),
            key: self.key(step, job),
            action: step.action.name(),
            state: EffectState::Applied,
            result: result.output(),
            warning,
            at: self.at,
        }
    }
}

/// When the lookups of an event are made again after they ended without an identity. `None` if they are not.
pub fn search_again_at(may_pass: bool, tries: u32, at: Time) -> Option<Time> {
    look_up_again_after(tries).filter(|_| may_pass).map(|wait| at + wait)
}
