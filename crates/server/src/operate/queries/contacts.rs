//! Contacts, and everything that happened to a person.

use std::collections::BTreeSet;

use sluice_domain::action::Action;
use sluice_domain::contact::ContactId;
use sluice_domain::event::{Event, EventId};
use sluice_domain::mask;
use sluice_ledger::{
    ApprovalFilter, ContactRecord, EffectRecord, EventFilter, EventLookup, EventRecord, EventSeq, JobRecord, Page,
};

use super::LIST_MAX;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{ContactView, DuplicatesView, IdentifiedView, List, TraceEntry, TraceView};

/// Events of one trace, the newest ones.
const TRACE_EVENTS_MAX: u32 = 100;
/// Events with a supplied identity that a contact shows, the newest ones.
const IDENTIFIED_MAX: u32 = 20;
/// Approvals and audit entries that a trace looks at, the newest ones.
const TRACE_LINES_MAX: u32 = 1_000;

impl Operator {
    /// Contacts, newest first: those that are not merged into another one, or all with conflicts.
    pub async fn contacts(
        &self,
        conflicts: bool,
        after: Option<&str>,
        limit: u32,
    ) -> Result<List<ContactView>, OperateError> {
        let after = after.map(contact_id).transpose()?.map(|id| id.0);
        let limit = limit.clamp(1, LIST_MAX);
        let records = self.ledger.contacts(conflicts, Page { after, limit }).await?;
        let next = records.last().filter(|_| records.len() == limit as usize).map(|last| last.id.to_string());
        Ok(List::new(records.iter().map(ContactView::new).collect(), next))
    }

    /// The contact with this id, or with this email address, phone number or id of a source.
    pub async fn contact(&self, name: &str) -> Result<ContactView, OperateError> {
        let record = self.contact_named(name).await?;
        self.contact_view(&record).await
    }

    /// A contact with the events that were identified later.
    async fn contact_view(&self, record: &ContactRecord) -> Result<ContactView, OperateError> {
        let identified = self.ledger.supplied_identities(record.id, IDENTIFIED_MAX).await?;
        let identified_later = identified.iter().map(IdentifiedView::new).collect();
        Ok(ContactView { identified_later, ..ContactView::new(record) })
    }

    pub(in crate::operate) async fn contact_named(&self, name: &str) -> Result<ContactRecord, OperateError> {
        let found = match ContactId::parse(name) {
            Some(id) => vec![id],
            None => self.contacts_identified(name).await?,
        };
        match found.as_slice() {
            [id] => match self.ledger.contact(*id).await? {
                Some(record) => Ok(record),
                None => Err(OperateError::NotFound(format!("unknown contact {id}"))),
            },
            [] => Err(OperateError::NotFound(
                "no contact has this id, email address, phone number or external id; `sluice contacts list` shows them all"
                    .to_owned(),
            )),
            several => {
                let ids: Vec<String> = several.iter().map(ToString::to_string).collect();
                let detail = format!("several contacts are meant: {}; use the id of one", ids.join(", "));
                Err(OperateError::Refused("ambiguous", detail))
            }
        }
    }

    async fn contacts_identified(&self, text: &str) -> Result<Vec<ContactId>, OperateError> {
        let live = self.revisions.current();
        let Some(rules) = &live.config.contacts else { return Ok(vec![]) };
        let sources: BTreeSet<&str> = live.config.flows.values().map(|flow| flow.source.as_str()).collect();
        let identifiers = rules.identifiers_named(text, sources).into_iter().map(|identifier| identifier.digest);
        Ok(self.ledger.find_contacts(identifiers.collect()).await?)
    }

    /// Everything that happened to an event, by its id, key or trace id; to a person, by contact id, email address, phone number or
    /// id; or to a record at a destination, by its id there.
    pub async fn trace(&self, about: &str) -> Result<TraceView, OperateError> {
        let about = about.trim();
        if EventId::parse_shortened(about).is_some() {
            let event = self.find(about).await?;
            return self.trace_of(None, vec![event], false).await;
        }
        match self.contact_named(about).await {
            Ok(record) => {
                let page = Page { after: None, limit: TRACE_EVENTS_MAX };
                let seqs: Vec<EventSeq> = self.ledger.contact_events(record.id, page).await?;
                let more = seqs.len() == TRACE_EVENTS_MAX as usize;
                let events = self.ledger.events(seqs).await?.into_iter().map(|(event, _)| event).collect();
                self.trace_of(Some(self.contact_view(&record).await?), events, more).await
            }
            Err(OperateError::NotFound(_)) => self.trace_unknown(about).await,
            Err(error) => Err(error),
        }
    }

    /// No contact is known by this text: it may be the key of an event, or a person of whom no contact is kept.
    async fn trace_unknown(&self, about: &str) -> Result<TraceView, OperateError> {
        let contacts = Some(Event::contacts_named(about)).filter(|contacts| !contacts.is_empty());
        let page = Page { after: None, limit: TRACE_EVENTS_MAX };
        let found = match contacts {
            Some(contacts) => {
                let filter = EventFilter { contacts: Some(contacts), ..EventFilter::default() };
                self.ledger.find_events(filter, page).await?.rows
            }
            None => vec![],
        };
        if found.is_empty() {
            let referenced = self.referenced(about).await?;
            if !referenced.is_empty() {
                let more = referenced.len() > TRACE_EVENTS_MAX as usize;
                let seqs = referenced.into_iter().take(TRACE_EVENTS_MAX as usize).collect();
                let events = self.ledger.events(seqs).await?.into_iter().map(|(event, _)| event).collect();
                return self.trace_of(None, events, more).await;
            }
            let unknown = |error| {
                match error {
                OperateError::NotFound(_) => OperateError::NotFound(
                    "nothing is known by this: no contact, event, idempotency key, trace id or record at a destination; \
                     it may have been deleted by retention"
                        .to_owned(),
                ),
                error => error,
            }
            };
            let event = self.event_named(about).await.map_err(unknown)?.event;
            return self.trace_of(None, vec![event], false).await;
        }
        let more = found.len() == TRACE_EVENTS_MAX as usize;
        self.trace_of(None, found.into_iter().map(|listed| listed.event).collect(), more).await
    }

    /// Events of a trace, or whose effects wrote the record with this id.
    async fn referenced(&self, about: &str) -> Result<Vec<EventSeq>, OperateError> {
        let of_trace = self.ledger.find_referenced(EventLookup::Trace(about.to_ascii_lowercase())).await?;
        match of_trace.is_empty() {
            true => Ok(self.ledger.find_referenced(EventLookup::Record(about.to_owned())).await?),
            false => Ok(of_trace),
        }
    }

    async fn trace_of(
        &self,
        contact: Option<ContactView>,
        events: Vec<EventRecord>,
        more: bool,
    ) -> Result<TraceView, OperateError> {
        let mut entries = Vec::new();
        let mut ids: BTreeSet<String> = contact.iter().map(|contact| contact.id.clone()).collect();
        for event in events {
            ids.insert(event.id.to_string());
            entries.push(self.event_entry(&event));
            self.add_duplicates(&event, &mut entries).await?;
            self.add_identity(&event, &mut entries).await?;
            self.add_variants(&event, &mut entries).await?;
            for job in self.ledger.jobs_of_event(event).await? {
                ids.insert(job.id.to_string());
                self.add_job(&job, &mut entries).await?;
            }
        }
        entries.extend(contact.iter().flat_map(field_entries));
        self.add_lines(&ids, &mut entries).await?;
        entries.sort();
        Ok(TraceView { contact, entries, more })
    }

    fn event_entry(&self, event: &EventRecord) -> TraceEntry {
        entry(
            (event.received_at.to_string(), "event"),
            event.id.to_string(),
            format!("{} from {}", event.event_type, event.source),
            "events show",
        )
    }

    /// The last duplicates one by one, and how many came before them.
    async fn add_duplicates(&self, event: &EventRecord, entries: &mut Vec<TraceEntry>) -> Result<(), OperateError> {
        let Some(duplicates) = self.ledger.event_duplicates(event.seq).await? else { return Ok(()) };
        let view = DuplicatesView::new(&duplicates);
        let line =
            |at: &str, what: String| entry((at.to_owned(), "duplicate"), event.id.to_string(), what, "events show");
        let earlier = view.count.saturating_sub(view.recent.len() as u64);
        if earlier > 0 {
            entries.push(line(&view.first_at, format!("the first of {earlier} earlier repeats")));
        }
        entries.extend(
            view.recent
                .iter()
                .map(|request| line(&request.at, format!("repeated: {}; trace {}", request.describe(), request.trace))),
        );
        Ok(())
    }

    async fn add_identity(&self, event: &EventRecord, entries: &mut Vec<TraceEntry>) -> Result<(), OperateError> {
        let identity = self.ledger.event_identity(event.seq).await?;
        if let Some(lookup) = identity.lookup.filter(|lookup| lookup.tries > 0) {
            let last = lookup.last.unwrap_or_default();
            let (at, next) = match lookup.due_at {
                Some(at) => (at, "and is made again"),
                None => (event.received_at, "and is not made again"),
            };
            let what = format!("the lookup of its identity ended {} with {last}, {next}", times(lookup.tries.into()));
            entries.push(entry((at.to_string(), "lookup"), event.id.to_string(), what, "events show"));
        }
        if let Some(record) = identity.supplied {
            let view = IdentifiedView::new(&record);
            let what = match view.how.as_str() {
                "enrichment" => format!("identified as {} by the lookup {}", view.contact, view.by),
                _ => format!("identified as {} by {}", view.contact, view.by),
            };
            entries.push(entry((view.at, "identity"), event.id.to_string(), what, "events show"));
        }
        Ok(())
    }

    async fn add_variants(&self, event: &EventRecord, entries: &mut Vec<TraceEntry>) -> Result<(), OperateError> {
        let variants = self.ledger.variants(event.seq).await?;
        entries.extend(variants.kept.iter().map(|variant| {
            let what = format!("other content under the same key, received {}", times(variant.times));
            entry((variant.received_at.to_string(), "variant"), event.id.to_string(), what, "events show")
        }));
        Ok(())
    }

    async fn add_job(&self, job: &JobRecord, entries: &mut Vec<TraceEntry>) -> Result<(), OperateError> {
        let id = job.id.to_string();
        let line = |at: String, kind, what| entry((at, kind), id.clone(), what, "jobs show");
        let replays = if job.replays > 0 { format!(", replayed {}", times(job.replays.into())) } else { String::new() };
        let what = format!("{} is {}{replays}", job.worker, job.state);
        entries.push(line(job.finished_at.unwrap_or(job.updated_at).to_string(), "job", what));
        for attempt in self.ledger.attempts(job.id).await? {
            let failure = attempt.failure.as_ref().map_or_else(String::new, |failure| format!(": {}", failure.code));
            let what = format!("{} {}{failure}", attempt.step, attempt.outcome);
            entries.push(line(attempt.started_at.to_string(), "attempt", what));
        }
        for effect in &self.ledger.effects(job.id).await? {
            let (kind, what) = match Action::parse(&effect.action).is_some_and(Action::is_lookup) {
                true => ("lookup", format!("{} ({}): {}", effect.step_id, effect.action, found(effect))),
                false if effect.destination.is_empty() => continue,
                false => {
                    let state = effect.state.as_str();
                    ("effect", format!("{} at {}: {state}", effect.action, effect.destination))
                }
            };
            entries.push(line(effect.last_at.to_string(), kind, what));
        }
        Ok(())
    }

    /// Approvals of the jobs, and audit entries that name one of the ids.
    async fn add_lines(&self, ids: &BTreeSet<String>, entries: &mut Vec<TraceEntry>) -> Result<(), OperateError> {
        let page = Page { after: None, limit: TRACE_LINES_MAX };
        for approval in self.ledger.approvals(ApprovalFilter::default(), page).await? {
            if ids.contains(&approval.job.to_string()) {
                let what = format!("{}: {}", mask::text(&approval.title), approval.state.as_str());
                let at = approval.decided_at.unwrap_or(approval.asked_at).to_string();
                entries.push(entry((at, "approval"), approval.id.to_string(), what, "approvals show"));
            }
        }
        for line in self.ledger.audit_trail(page).await? {
            if let Some(id) = line.object.split_whitespace().find(|word| ids.contains(*word)) {
                let what = format!("{} by {}: {}", line.action, line.actor, mask::text(&line.detail));
                let command = "sluice audit".to_owned();
                let (at, id) = (line.at.to_string(), id.to_owned());
                entries.push(TraceEntry { at, kind: "audit".to_owned(), id, what, command });
            }
        }
        Ok(())
    }
}

/// `once`, or how many times.
fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// What a lookup came to, without what it found.
fn found(effect: &EffectRecord) -> String {
    let result = effect.result.as_deref();
    match result.and_then(|result| result["warning"]["code"].as_str()) {
        Some(code) => code.to_owned(),
        None if result.is_some_and(|result| result["found"] == true) => "found".to_owned(),
        None => "absent".to_owned(),
    }
}

/// What became of every value of a contact's fields.
fn field_entries(contact: &ContactView) -> impl Iterator<Item = TraceEntry> + use<'_> {
    contact.fields.iter().flat_map(|field| field.values.iter().map(move |value| (field, value))).map(
        |(field, value)| {
            let decision = match &value.lost {
                Some(reason) => format!("does not count: {reason}"),
                None => "counts".to_owned(),
            };
            let what = format!("{} = {} from {} {decision}", field.name, value.value, value.source);
            entry((value.occurred_at.clone(), "field"), contact.id.clone(), what, "contacts show")
        },
    )
}

fn entry((at, kind): (String, &str), id: String, what: String, command: &str) -> TraceEntry {
    let command = format!("sluice {command} {id}");
    TraceEntry { at, kind: kind.to_owned(), id, what, command }
}

pub(in crate::operate) fn contact_id(text: &str) -> Result<ContactId, OperateError> {
    ContactId::parse(text)
        .ok_or_else(|| OperateError::Invalid(format!("`{text}` is not the id of a contact, such as con_17")))
}
