//! Response clocks.

use std::sync::Arc;

use rusqlite::{OptionalExtension, params};
use sluice_domain::event::EventId;
use sluice_domain::history::Measure;
use sluice_domain::job::{JobId, JobState};
use sluice_domain::respond::{DueResponse, Progress, ResponseChange, ResponseClock, ResponseState, counted};
use sluice_domain::time::Time;

use super::batch::Batch;
use super::read_pool::Reader;
use super::row::wrong;
use crate::filter::Page;
use crate::record::ResponseCount;

impl Batch<'_, '_> {
    pub(super) fn write_response(&mut self, clock: &ResponseClock) -> rusqlite::Result<()> {
        self.cached(include_str!("sql/write_response.sql"))?.execute(params![
            clock.event,
            clock.event_id.0,
            clock.flow.as_ref(),
            clock.job.0,
            clock.worker.as_ref(),
            clock.step.as_deref().unwrap_or_default(),
            clock.received_at.0,
            clock.risk_at.0,
            clock.deadline.0,
            clock.state.as_str(),
            clock.look_at.0
        ])?;
        Ok(())
    }

    /// Stores a clock after a look, or deletes one that has ended. `false` if it does not run any more.
    pub(super) fn change_response(&mut self, change: &ResponseChange) -> rusqlite::Result<bool> {
        let clock = &change.clock;
        let stored = self.cached(include_str!("sql/response.sql"))?.query_row([clock.event], clock_row).optional()?;
        let Some(stored) = stored else { return Ok(false) };
        for result in counted(stored.state, clock.state) {
            self.counts.add(Measure::Responses, &clock.flow, result);
        }
        match clock.state.is_open() {
            true => self.write_response(clock)?,
            false => drop(self.cached(include_str!("sql/delete_response.sql"))?.execute([clock.event])?),
        }
        Ok(true)
    }
}

impl Reader<'_> {
    pub(crate) fn due_responses(&self, now: &Time, limit: &u32) -> rusqlite::Result<Vec<DueResponse>> {
        let mut statement = self.prepare_cached(include_str!("sql/due_responses.sql"))?;
        let mut rows = statement.query([now.0, i64::from(*limit)])?;
        let mut due = Vec::new();
        while let Some(row) = rows.next()? {
            let clock = clock_row(row)?;
            let job = match row.get::<_, Option<i64>>(11)? {
                Some(code) => {
                    let state = JobState::from_code(code).ok_or_else(|| wrong(11, "unknown job state"))?;
                    Some((state, Time(row.get(12)?)))
                }
                None => None,
            };
            let effect = match &clock.step {
                Some(step) => {
                    let effects = self.effects(&clock.job)?;
                    effects.into_iter().find(|effect| *effect.step_id == **step)
                }
                None => None,
            };
            let progress = Progress::of(job, effect.map(|effect| (effect.state, effect.last_at)));
            due.push(DueResponse { clock, progress });
        }
        Ok(due)
    }

    pub(crate) fn responses(&self, page: &Page) -> rusqlite::Result<Vec<ResponseClock>> {
        let mut statement = self.prepare_cached(include_str!("sql/responses.sql"))?;
        let before = page.after.unwrap_or(i64::MAX);
        statement.query_map([before, i64::from(page.limit)], clock_row)?.collect()
    }

    pub(crate) fn response_counts(&self) -> rusqlite::Result<Vec<ResponseCount>> {
        let mut statement = self.prepare_cached(include_str!("sql/response_counts.sql"))?;
        let count = |row: &rusqlite::Row<'_>| {
            let state: String = row.get(1)?;
            Ok(ResponseCount {
                flow: row.get::<_, String>(0)?.into(),
                state: ResponseState::parse(&state).ok_or_else(|| wrong(1, "unknown state of a response"))?,
                count: row.get::<_, i64>(2)?.unsigned_abs(),
            })
        };
        let mut counts: Vec<ResponseCount> = statement.query_map([], count)?.collect::<rusqlite::Result<_>>()?;
        counts.sort_by(|a, b| (&a.flow, a.state).cmp(&(&b.flow, b.state)));
        Ok(counts)
    }
}

fn clock_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<ResponseClock> {
    let state: String = row.get(9)?;
    let text = |column: usize| -> rusqlite::Result<Arc<str>> { Ok(row.get::<_, String>(column)?.into()) };
    Ok(ResponseClock {
        event: row.get(0)?,
        event_id: EventId(row.get(1)?),
        flow: text(2)?,
        job: JobId(row.get(3)?),
        worker: text(4)?,
        step: Some(text(5)?).filter(|step| !step.is_empty()),
        received_at: Time(row.get(6)?),
        risk_at: Time(row.get(7)?),
        deadline: Time(row.get(8)?),
        state: ResponseState::parse(&state).ok_or_else(|| wrong(9, "unknown state of a response"))?,
        look_at: Time(row.get(10)?),
    })
}
