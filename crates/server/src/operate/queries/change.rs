//! Revisions of the configuration.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_ledger::{Page, RevisionRecord};

use crate::config::Files;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{List, RevisionDetail, RevisionView};

/// Maximum rows per page.
pub(in crate::operate) const REVISIONS_MAX: u32 = 500;

impl Operator {
    /// Activations of revisions, newest first.
    pub async fn configured(&self, after: Option<i64>, limit: u32) -> Result<List<RevisionView>, OperateError> {
        let limit = limit.clamp(1, REVISIONS_MAX);
        let current =
            self.ledger.revision_history(Page { after: None, limit: 1 }).await?.first().map(|newest| newest.n);
        let mut records = self.ledger.revision_history(Page { after, limit: limit + 1 }).await?;
        let more = records.len() > limit as usize;
        records.truncate(limit as usize);
        let next = records.last().filter(|_| more).map(|last| last.n.to_string());
        Ok(List::new(records.into_iter().map(|record| RevisionView::new(record, current)).collect(), next))
    }

    pub async fn revision(&self, name: &str) -> Result<RevisionDetail, OperateError> {
        let history = self.ledger.revision_history(Page { after: None, limit: REVISIONS_MAX }).await?;
        let revision = find_revision(&history, name)?;
        let current = history.first().map(|newest| newest.n);
        let files = self.files_of(&revision).await?;
        let is_current = history.first().is_some_and(|newest| newest.hash == revision);
        let in_force = history
            .into_iter()
            .filter(|record| record.hash == revision)
            .map(|record| RevisionView::new(record, current));
        Ok(RevisionDetail {
            current: is_current,
            in_force: in_force.collect(),
            files: files.iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect(),
            revision,
        })
    }

    /// Files of the active revision; empty if there never was one.
    pub(in crate::operate) async fn running(&self) -> Result<Files, OperateError> {
        match self.ledger.revision_history(Page { after: None, limit: 1 }).await?.first() {
            Some(newest) => self.files_of(&newest.hash).await,
            None => Ok(Files::default()),
        }
    }

    pub(in crate::operate) async fn files_of(&self, revision: &str) -> Result<Files, OperateError> {
        let kept = self.ledger.revision(Arc::from(revision)).await?;
        kept.and_then(|kept| Files::from_json(&kept))
            .ok_or_else(|| OperateError::NotFound(format!("the files of revision {revision} are not stored")))
    }
}

/// Resolves a hash, a unique prefix or `previous`.
pub(in crate::operate) fn find_revision(history: &[RevisionRecord], name: &str) -> Result<String, OperateError> {
    if name == "previous" {
        let current = history.first().map(|newest| newest.hash.as_str());
        let before = history.iter().find(|record| Some(record.hash.as_str()) != current);
        return before
            .map(|record| record.hash.clone())
            .ok_or_else(|| OperateError::NotFound("there is no revision before the active one".into()));
    }
    let matching: BTreeSet<&str> = history
        .iter()
        .map(|record| record.hash.as_str())
        .filter(|hash| name.len() >= 4 && hash.starts_with(&name.to_ascii_lowercase()))
        .collect();
    match matching.iter().collect::<Vec<_>>()[..] {
        [one] => Ok((*one).to_owned()),
        [] => Err(OperateError::NotFound(format!("unknown revision `{name}`; `sluice revisions` lists them"))),
        _ => Err(OperateError::Invalid(format!("several revisions start with `{name}`; use a longer prefix"))),
    }
}
