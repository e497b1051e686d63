//! Failure groups: changed with the job that becomes a dead letter, or ceases to be one.

use rusqlite::{OptionalExtension, Row, params};
use sluice_domain::failure_group::{EMPTY_KEPT, FailureGroup, GroupId, GroupKey, GroupState};
use sluice_domain::job::{JobId, JobState};
use sluice_domain::outcome::Failure;
use sluice_domain::time::Time;

use super::batch::{Batch, JobHead};
use super::read_pool::Reader;
use super::row::wrong;
use crate::failure_group::{GroupQuery, MarkGroup, MarkedGroup};

impl Batch<'_, '_> {
    /// A job has become a dead letter.
    pub(super) fn add_to_group(&mut self, key: &GroupKey, job: JobId, at: Time) -> rusqlite::Result<()> {
        if let Some(mut group) = self.group_of(key)? {
            group.add(job, at);
            return self.write_group(&group);
        }
        let insert = include_str!("sql/insert_failure_group.sql");
        self.cached(insert)?.execute(params![key.worker.as_ref(), key.class, key.code.as_ref(), at.0, job.0])?;
        Ok(())
    }

    /// A job dies of a failure.
    pub(super) fn note_death(&mut self, head: &JobHead, failure: &Failure, at: Time) -> rusqlite::Result<()> {
        self.add_to_group(&GroupKey::new(&head.total.worker, failure), head.id, at)
    }

    /// A dead letter ceases to be one. Called before its row is changed, which holds why it died.
    pub(super) fn note_revival(&mut self, head: &JobHead) -> rusqlite::Result<()> {
        if head.guard.state != JobState::Dead {
            return Ok(());
        }
        let text = |row: &Row<'_>, column| row.get::<_, Option<String>>(column).map(Option::unwrap_or_default);
        let (class, code) = self
            .cached(include_str!("sql/job_failure.sql"))?
            .query_row([head.id.0], |row| Ok((text(row, 0)?, text(row, 1)?)))?;
        let key = GroupKey::stored(&head.total.worker, &class, &code);
        if let Some(mut group) = key.map(|key| self.group_of(&key)).transpose()?.flatten() {
            group.remove();
            self.write_group(&group)?;
        }
        Ok(())
    }

    pub(super) fn mark_failure_group(&mut self, mark: &MarkGroup) -> rusqlite::Result<MarkedGroup> {
        let Some(mut group) = self.reader().failure_group(&mark.group)? else { return Ok(MarkedGroup::NotFound) };
        if !group.mark(mark.state, &mark.actor, &mark.reason, mark.at) {
            return Ok(MarkedGroup::Refused(group.state));
        }
        self.write_group(&group)?;
        self.log(mark.at, &mark.actor, mark.state.verb(), &group.id.to_string(), &mark.reason)?;
        Ok(MarkedGroup::Done(group))
    }

    pub(super) fn prune_failure_groups(&mut self, now: Time, rows_max: u32) -> rusqlite::Result<usize> {
        let before = now - EMPTY_KEPT;
        self.cached(include_str!("sql/delete_failure_groups.sql"))?.execute(params![before.0, rows_max])
    }

    fn group_of(&self, key: &GroupKey) -> rusqlite::Result<Option<FailureGroup>> {
        self.cached(include_str!("sql/failure_group_of.sql"))?
            .query_row(params![key.worker.as_ref(), key.class, key.code.as_ref()], group_row)
            .optional()
    }

    fn write_group(&self, group: &FailureGroup) -> rusqlite::Result<()> {
        let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.cached(include_str!("sql/update_failure_group.sql"))?.execute(params![
            group.id.0,
            group.state.as_str(),
            count(group.count),
            count(group.total),
            group.last_at.0,
            group.last_job.0,
            group.changed_at.0,
            group.actor,
            group.reason
        ])?;
        Ok(())
    }
}

impl Reader<'_> {
    pub(crate) fn failure_group(&self, id: &GroupId) -> rusqlite::Result<Option<FailureGroup>> {
        self.prepare_cached(include_str!("sql/failure_group.sql"))?.query_row([id.0], group_row).optional()
    }

    pub(crate) fn failure_groups(&self, query: &GroupQuery) -> rusqlite::Result<Vec<FailureGroup>> {
        let GroupQuery { state, worker, code, with_dead_letters, after, limit } = query;
        let (after_at, after_id) = after.map(|(at, id)| (at.0, id.0)).unzip();
        let mut statement = self.prepare_cached(include_str!("sql/failure_groups.sql"))?;
        let state = state.map(GroupState::as_str);
        let values = params![after_at, after_id, state, worker, code, with_dead_letters, limit];
        statement.query_map(values, group_row)?.collect()
    }

    pub(crate) fn failure_group_counts(&self) -> rusqlite::Result<Vec<(GroupState, u64)>> {
        let mut statement = self.prepare_cached(include_str!("sql/failure_group_counts.sql"))?;
        let row = |row: &Row<'_>| Ok((state(row, 0)?, row.get::<_, i64>(1)?.unsigned_abs()));
        let mut counts: Vec<(GroupState, u64)> = statement.query_map([], row)?.collect::<rusqlite::Result<_>>()?;
        counts.sort_unstable();
        Ok(counts)
    }
}

fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<GroupState> {
    let word: String = row.get(column)?;
    GroupState::parse(&word).ok_or_else(|| wrong(column, "unknown state of a failure group"))
}

fn group_row(row: &Row<'_>) -> rusqlite::Result<FailureGroup> {
    let text = |column: usize| row.get::<_, String>(column);
    let count = |column: usize| row.get::<_, i64>(column).map(i64::unsigned_abs);
    Ok(FailureGroup {
        id: GroupId(row.get(0)?),
        key: GroupKey::stored(&text(1)?, &text(2)?, &text(3)?).ok_or_else(|| wrong(2, "unknown failure class"))?,
        state: state(row, 4)?,
        count: count(5)?,
        total: count(6)?,
        first_at: Time(row.get(7)?),
        last_at: Time(row.get(8)?),
        last_job: JobId(row.get(9)?),
        changed_at: Time(row.get(10)?),
        actor: text(11)?,
        reason: text(12)?,
    })
}
