//! Failure groups.

use std::collections::BTreeMap;

use sluice_domain::failure_group::{FailureGroup, GroupId, GroupKey, GroupState};
use sluice_domain::job::JobState;
use sluice_domain::time::Time;

use super::Store;
use crate::failure_group::{GroupQuery, MarkGroup, MarkedGroup};
use crate::record::JobRecord;

#[derive(Clone, Debug, Default)]
pub(super) struct FailureGroups {
    by_key: BTreeMap<GroupKey, FailureGroup>,
    last_id: i64,
}

/// The group of a job, if it is a dead letter.
pub(super) fn group_key(job: &JobRecord) -> Option<GroupKey> {
    let failure = job.failure.as_ref().filter(|_| job.state == JobState::Dead)?;
    Some(GroupKey::new(&job.worker, failure))
}

impl FailureGroups {
    /// A job was changed: it was a dead letter with one key before, and is one with another key now.
    pub(super) fn update(&mut self, before: Option<GroupKey>, job: &JobRecord) {
        let after = group_key(job);
        if before == after {
            return;
        }
        if let Some(group) = before.and_then(|key| self.by_key.get_mut(&key)) {
            group.remove();
        }
        if let Some(key) = after {
            let at = job.finished_at.unwrap_or(job.updated_at);
            if let Some(group) = self.by_key.get_mut(&key) {
                return group.add(job.id, at);
            }
            self.last_id += 1;
            let group = FailureGroup::begun(GroupId(self.last_id), key.clone(), job.id, at);
            self.by_key.insert(key, group);
        }
    }

    pub(super) fn prune(&mut self, now: Time, limit: usize) -> usize {
        let mut expired: Vec<(Time, GroupKey)> = (self.by_key.iter())
            .filter(|(_, group)| group.is_expired(now))
            .map(|(key, group)| (group.last_at, key.clone()))
            .collect();
        expired.sort();
        expired.truncate(limit);
        for (_, key) in &expired {
            self.by_key.remove(key);
        }
        expired.len()
    }
}

impl Store {
    pub fn mark_group(&mut self, mark: &MarkGroup) -> MarkedGroup {
        let found = self.failure_groups.by_key.values_mut().find(|group| group.id == mark.group);
        let Some(group) = found else { return MarkedGroup::NotFound };
        if !group.mark(mark.state, &mark.actor, &mark.reason, mark.at) {
            return MarkedGroup::Refused(group.state);
        }
        let group = group.clone();
        self.log(mark.at, &mark.actor, mark.state.verb(), &group.id.to_string(), &mark.reason);
        MarkedGroup::Done(group)
    }

    pub(crate) fn failure_group(&self, id: GroupId) -> Option<FailureGroup> {
        self.failure_groups.by_key.values().find(|group| group.id == id).cloned()
    }

    pub(crate) fn list_failure_groups(&self, query: &GroupQuery) -> Vec<FailureGroup> {
        let mut found: Vec<&FailureGroup> =
            self.failure_groups.by_key.values().filter(|group| query.matches(group)).collect();
        found.sort_by_key(|group| std::cmp::Reverse((group.last_at, group.id)));
        found.into_iter().take(query.limit as usize).cloned().collect()
    }

    pub(crate) fn failure_group_counts(&self) -> Vec<(GroupState, u64)> {
        let mut counts = BTreeMap::<GroupState, u64>::new();
        for group in self.failure_groups.by_key.values().filter(|group| group.count > 0) {
            *counts.entry(group.state).or_default() += 1;
        }
        counts.into_iter().collect()
    }
}
