//! Lanes in which jobs wait behind a job that is not due.

use std::collections::BTreeMap;

use rusqlite::params;
use sluice_domain::job::JobId;
use sluice_domain::time::Time;

use super::backlog::json_array;
use super::read_pool::Reader;
use crate::record::{BlockedLane, looked_at_max};

impl Reader<'_> {
    pub(crate) fn blocked_lanes(&self, now: &Time, limit: &u32) -> rusqlite::Result<Vec<BlockedLane>> {
        // The head of a lane with its first job behind and the number of them.
        let mut found = BTreeMap::<JobId, (JobId, Time, u64)>::new();
        let look_max = i64::try_from(looked_at_max(*limit as usize)).unwrap_or(i64::MAX);
        let mut statement = self.prepare_cached(include_str!("sql/blocked_jobs.sql"))?;
        for lane in self.live_lanes()? {
            let mut rows =
                statement.query(params![lane.destination.as_ref(), lane.worker.as_ref(), now.0, look_max])?;
            while let Some(row) = rows.next()? {
                let Some(head) = row.get::<_, Option<i64>>(2)?.map(JobId) else { continue };
                let behind = found.entry(head).or_insert((JobId(row.get(0)?), Time(row.get(1)?), 0));
                behind.2 += 1;
            }
        }
        let mut lanes = Vec::with_capacity(found.len().min(*limit as usize));
        let mut oldest_first: Vec<_> = found.into_iter().collect();
        oldest_first.sort_by_key(|(head, (_, since, _))| (*since, *head));
        for (head, (first_behind, waits_since, jobs_behind)) in oldest_first.into_iter().take(*limit as usize) {
            if let Some(head) = self.job(&head)? {
                lanes.push(BlockedLane { head, first_behind, waits_since, jobs_behind });
            }
        }
        Ok(lanes)
    }

    pub(crate) fn blocking_jobs(&self, jobs: &[JobId], now: &Time) -> rusqlite::Result<Vec<(JobId, JobId)>> {
        let ids = json_array(jobs.iter().map(|job| job.0));
        let mut statement = self.prepare_cached(include_str!("sql/blocking_jobs.sql"))?;
        let mut rows = statement.query(params![ids, now.0])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            if let Some(blocking) = row.get::<_, Option<i64>>(1)? {
                found.push((JobId(row.get(0)?), JobId(blocking)));
            }
        }
        Ok(found)
    }
}
