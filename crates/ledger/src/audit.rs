//! The audit trail: filters and pages.

use sluice_domain::time::Time;

use crate::filter::{ListPage, Page};
use crate::record::AuditRecord;

/// Entries that one page of a filtered list looks at. Beyond them it ends with what it has found, and a cursor.
pub(crate) const LOOKED_AT_MAX: i64 = 50_000;

/// Selects entries of the audit trail. An absent field does not restrict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub actor: Option<String>,
    pub action: Option<String>,
    /// Beginning of the object: `job_17`, `user`, `destination:crm`.
    pub object: Option<String>,
    /// At or after this time.
    pub since: Option<Time>,
    /// Before this time.
    pub until: Option<Time>,
}

impl AuditFilter {
    pub(crate) fn is_empty(&self) -> bool {
        *self == AuditFilter::default()
    }

    pub(crate) fn matches(&self, entry: &AuditRecord) -> bool {
        self.actor.as_ref().is_none_or(|actor| entry.actor == *actor)
            && self.action.as_ref().is_none_or(|action| entry.action == *action)
            && self.object.as_ref().is_none_or(|object| entry.object.starts_with(object.as_str()))
            && self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at < until)
    }

    /// The ids that a page looks at: from the first to before the second.
    pub(crate) fn window(&self, page: Page, end: i64) -> (i64, i64) {
        let before = page.after.map_or(end, |after| after.clamp(0, end));
        let first = if self.is_empty() { 0 } else { (before - LOOKED_AT_MAX).max(0) };
        (first, before)
    }

    /// The page with these entries. `first` is the oldest id that was looked at, with its time if older entries can match.
    pub(crate) fn found(
        &self,
        entries: Vec<AuditRecord>,
        page: Page,
        (first, scanned_to): (i64, Option<Time>),
    ) -> ListPage<AuditRecord> {
        match ListPage::of(entries, page, |entry| entry.id) {
            full @ ListPage { next: Some(_), .. } => full,
            short => ListPage { next: scanned_to.map(|_| first), scanned_to, ..short },
        }
    }
}
