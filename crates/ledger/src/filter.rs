//! Filters and pages of lists.

use serde::{Deserialize, Serialize};
use sluice_domain::approval::ApprovalState;
use sluice_domain::event::EventStatus;
use sluice_domain::job::JobState;
use sluice_domain::key::KeyDigest;
use sluice_domain::ops::ApprovalRecord;
use sluice_domain::time::Time;

use crate::op::FoundKeys;
use crate::record::EventSeq;

/// Selects jobs, for lists and for bulk commands. An absent field does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobFilter {
    /// Any of these; empty means all.
    pub states: Vec<JobState>,
    pub worker: Option<String>,
    pub queue: Option<String>,
    pub dead_letter_queue: Option<String>,
    pub source: Option<String>,
    /// Failure class.
    pub class: Option<String>,
    /// Failure code.
    pub code: Option<String>,
    /// Destination of the step at which the job is.
    pub destination: Option<String>,
    /// Changed at or after this time.
    pub since: Option<Time>,
    /// Changed before this time.
    pub until: Option<Time>,
}

/// Selects events. An absent field does not restrict.
#[derive(Clone, Debug, Default)]
pub struct EventFilter {
    pub source: Option<String>,
    pub event_type: Option<String>,
    pub status: Option<EventStatus>,
    /// Received at or after this time.
    pub since: Option<Time>,
    /// With one of these idempotency keys.
    pub keys: Option<Vec<KeyDigest>>,
    /// About one of these contacts.
    pub contacts: Option<Vec<KeyDigest>>,
}

/// An [`EventFilter`] whose keys and contacts were looked up. The index of keys belongs to the writer.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    pub source: Option<String>,
    pub event_type: Option<String>,
    pub status: Option<EventStatus>,
    pub since: Option<Time>,
    /// Only these.
    pub seqs: Option<Vec<EventSeq>>,
}

impl EventQuery {
    pub(crate) fn new(filter: EventFilter, found: FoundKeys) -> EventQuery {
        let EventFilter { source, event_type, status, since, keys, contacts } = filter;
        let seqs = match (keys, contacts) {
            (None, None) => None,
            (Some(_), None) => Some(found.seqs),
            (None, Some(_)) => Some(found.contact_events),
            (Some(_), Some(_)) => {
                Some(found.seqs.into_iter().filter(|seq| found.contact_events.contains(seq)).collect())
            }
        };
        EventQuery { source, event_type, status, since, seqs }
    }
}

/// Selects approvals.
#[derive(Clone, Debug, Default)]
pub struct ApprovalFilter {
    pub state: Option<ApprovalState>,
    pub worker: Option<String>,
    pub asked_before: Option<Time>,
}

impl ApprovalFilter {
    pub(crate) fn matches(&self, record: &ApprovalRecord) -> bool {
        self.state.is_none_or(|state| record.state == state)
            && self.worker.as_deref().is_none_or(|worker| record.worker == worker)
            && self.asked_before.is_none_or(|before| record.asked_at < before)
    }
}

/// Selects stored requests, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredQuery {
    /// Only events with a greater sequence number.
    pub after: EventSeq,
    pub limit: u32,
    /// The page ends once its bodies exceed this, but not before the first event.
    pub body_bytes_max: usize,
}

/// A part of a list, newest first unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Only entries behind the one with this number: a job id or a sequence number.
    pub after: Option<i64>,
    pub limit: u32,
}

/// Rows of a list. A page that is not full ends where the list ends, or where the time for its search was up.
#[derive(Clone, Debug, PartialEq)]
pub struct ListPage<T> {
    pub rows: Vec<T>,
    /// Where the next page begins: [`Page::after`]. Absent at the end of the list.
    pub next: Option<i64>,
    /// The time was up before the page was full: rows were looked at back to this time, and `next` continues there.
    pub scanned_to: Option<Time>,
}

impl<T> ListPage<T> {
    /// The list ends here.
    pub(crate) fn whole(rows: Vec<T>) -> ListPage<T> {
        ListPage { rows, next: None, scanned_to: None }
    }

    /// As many rows as were asked for; the next page begins behind the last one.
    pub(crate) fn full(rows: Vec<T>, id: impl FnOnce(&T) -> i64) -> ListPage<T> {
        let next = rows.last().map(id);
        ListPage { rows, next, scanned_to: None }
    }

    /// All rows that match, up to the limit of a page.
    pub(crate) fn of(rows: Vec<T>, page: Page, id: impl FnOnce(&T) -> i64) -> ListPage<T> {
        match rows.len() >= page.limit as usize {
            true => ListPage::full(rows, id),
            false => ListPage::whole(rows),
        }
    }

    pub(crate) fn try_map<U, E>(self, map: impl FnMut(T) -> Result<U, E>) -> Result<ListPage<U>, E> {
        let rows = self.rows.into_iter().map(map).collect::<Result<_, E>>()?;
        Ok(ListPage { rows, next: self.next, scanned_to: self.scanned_to })
    }
}
