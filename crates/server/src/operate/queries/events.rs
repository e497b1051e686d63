//! Find events: by key, contact, time and status.

use sluice_domain::event::{Event, EventId, EventStatus};
use sluice_domain::key::{KeyDigest, TENANT};
use sluice_domain::time::Time;
use sluice_ledger::{EventFilter, ListedEvent, Page};

use super::LIST_MAX;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{EventView, List};
use crate::schedule::cron;

/// Events to list. An absent field does not restrict.
#[derive(Clone, Debug, Default)]
pub struct EventsRequest {
    pub source: Option<String>,
    pub event_type: Option<String>,
    /// Idempotency key.
    pub key: Option<String>,
    /// Email address, phone number or external id.
    pub contact: Option<String>,
    /// Received at or after this time.
    pub since: Option<Time>,
    pub status: Option<EventStatus>,
    /// Id of the last event of the previous page.
    pub after: Option<String>,
    pub limit: u32,
}

impl Operator {
    /// Newest first.
    pub async fn events(&self, request: EventsRequest) -> Result<List<EventView>, OperateError> {
        let after = match &request.after {
            Some(id) => Some(self.find(id).await?.seq),
            None => None,
        };
        let limit = request.limit.clamp(1, LIST_MAX);
        let filter = EventFilter {
            source: request.source.clone(),
            event_type: request.event_type.clone(),
            status: request.status,
            since: request.since,
            ..self.looked_up(&request)?
        };
        let found = self.ledger.find_events(filter, Page { after, limit }).await?;
        let next = match (found.next, found.rows.last()) {
            (Some(next), Some(last)) if last.event.seq == next => Some(last.event.id.to_string()),
            // The last event that was looked at.
            (Some(next), _) => self.ledger.events(vec![next]).await?.pop().map(|(event, _)| event.id.to_string()),
            (None, _) => None,
        };
        let items = found.rows.iter().map(|listed| EventView::new(&listed.event, &listed.jobs)).collect();
        Ok(List { items, next, scanned_to: found.scanned_to.map(|at| at.to_string()) })
    }

    /// The part of a filter that is found by digests: key and contact.
    pub(super) fn looked_up(&self, request: &EventsRequest) -> Result<EventFilter, OperateError> {
        let named = |text: &String| match Event::contacts_named(text) {
            contacts if contacts.is_empty() => Err(OperateError::Invalid("`contact` is empty".to_owned())),
            contacts => Ok(contacts),
        };
        let keys = match request.key.as_deref().map(str::trim) {
            Some("") => return Err(OperateError::Invalid("`key` is empty".to_owned())),
            Some(key) => Some(self.digests(key)),
            None => None,
        };
        let contacts = request.contact.as_ref().map(named).transpose()?;
        Ok(EventFilter { keys, contacts, ..EventFilter::default() })
    }

    /// The event with this id, or the newest event with this idempotency key.
    pub(super) async fn event_named(&self, name: &str) -> Result<ListedEvent, OperateError> {
        if EventId::parse_shortened(name).is_some() {
            let event = self.find(name).await?;
            let jobs = self.ledger.jobs_of_event(event.clone()).await?;
            return Ok(ListedEvent { event, jobs: jobs.iter().map(Into::into).collect() });
        }
        let filter = EventFilter { keys: Some(self.digests(name.trim())), ..EventFilter::default() };
        let mut found = self.ledger.find_events(filter, Page { after: None, limit: LIST_MAX }).await?.rows;
        let Some(newest) = found.first() else {
            return Err(OperateError::NotFound(
                "no event has this id or idempotency key; it may have been deleted by retention. Ids begin with evt_; \
                 `sluice events --contact` finds the events of a person"
                    .to_owned(),
            ));
        };
        let other = found.iter().find(|listed| listed.event.flow != newest.event.flow);
        if let Some(other) = other {
            return Err(OperateError::Refused(
                "ambiguous",
                format!(
                    "events of several flows have this key: {} ({}), {} ({}); use an id",
                    newest.event.id, newest.event.flow, other.event.id, other.event.flow
                ),
            ));
        }
        Ok(found.swap_remove(0))
    }

    /// The digests of a key in every flow of the active configuration: the same text in two flows is two keys.
    fn digests(&self, key: &str) -> Vec<KeyDigest> {
        let config = self.revisions.current().config.clone();
        let flows = config.flows.keys().cloned();
        let queues = config.queues.keys().map(|queue| format!("queue:{queue}"));
        let scheduled = config.workers.values().filter(|worker| worker.schedule.is_some());
        let schedules = scheduled.map(|worker| format!("{}:{}", cron::SOURCE, worker.name));
        flows.chain(queues).chain(schedules).map(|flow| KeyDigest::new(TENANT, &flow, key)).collect()
    }
}
