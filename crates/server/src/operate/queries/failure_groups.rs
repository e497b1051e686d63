//! Failure groups: list, one.

use std::collections::BTreeMap;

use sluice_domain::failure_group::{FailureGroup, GroupId};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::mask;
use sluice_domain::time::Time;
use sluice_ledger::GroupQuery;

use super::LIST_MAX;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{FailureGroupView, List};

impl Operator {
    /// The group with the newest dead letter first.
    pub async fn failure_groups(&self, query: GroupQuery) -> Result<List<FailureGroupView>, OperateError> {
        let limit = query.limit.clamp(1, LIST_MAX);
        let groups = self.ledger.failure_groups(GroupQuery { limit, ..query }).await?;
        let next = (groups.len() == limit as usize).then(|| groups.last().map(cursor)).flatten();
        Ok(List::new(self.with_messages(groups).await?, next))
    }

    pub async fn failure_group(&self, id: &str) -> Result<FailureGroupView, OperateError> {
        let id = group_id(id)?;
        let found = self.ledger.failure_group(id).await?;
        self.group_view(found.ok_or_else(|| unknown(id))?).await
    }

    pub(in crate::operate) async fn group_view(&self, group: FailureGroup) -> Result<FailureGroupView, OperateError> {
        let mut views = self.with_messages(vec![group]).await?;
        Ok(views.remove(0))
    }

    /// Messages of the newest dead letters, read together.
    async fn with_messages(&self, groups: Vec<FailureGroup>) -> Result<Vec<FailureGroupView>, OperateError> {
        let jobs = self.ledger.jobs(groups.iter().map(|group| group.last_job).collect()).await?;
        let dead = jobs.into_iter().filter(|job| job.state == JobState::Dead);
        let mut messages: BTreeMap<JobId, String> =
            dead.filter_map(|job| Some((job.id, mask::text(&job.failure?.message).into_owned()))).collect();
        let view = |group: FailureGroup| {
            let message = messages.remove(&group.last_job).unwrap_or_default();
            FailureGroupView::new(group, message)
        };
        Ok(groups.into_iter().map(view).collect())
    }
}

/// Reads `group_7`.
pub(in crate::operate) fn group_id(text: &str) -> Result<GroupId, OperateError> {
    GroupId::parse(text)
        .ok_or_else(|| OperateError::Invalid(format!("`{text}` is not a failure group, such as group_7")))
}

pub(in crate::operate) fn unknown(id: GroupId) -> OperateError {
    OperateError::NotFound(format!("unknown failure group {id}; `sluice dlq groups` lists them"))
}

/// Place of a group in the list: its newest time in milliseconds and its number.
fn cursor(group: &FailureGroup) -> String {
    format!("{}.{}", group.last_at.0, group.id.0)
}

/// Reads a [`cursor`].
pub(in crate::operate) fn parse_cursor(text: &str) -> Result<(Time, GroupId), OperateError> {
    let parts = text.split_once('.').and_then(|(at, id)| Some((Time(at.parse().ok()?), GroupId(id.parse().ok()?))));
    parts.ok_or_else(|| OperateError::Invalid(format!("`{text}` is not a cursor; use `next` of the page before")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_reads_back_and_nonsense_is_refused() {
        assert_eq!(parse_cursor("1772323200000.7").unwrap(), (Time(1_772_323_200_000), GroupId(7)));
        for text in ["", "7", "a.b", "1.", ".1"] {
            assert!(parse_cursor(text).is_err(), "{text}");
        }
    }
}
