//! Response clocks.

use std::collections::BTreeMap;

use sluice_domain::history::Measure;
use sluice_domain::respond::{DueResponse, Progress, ResponseChange, ResponseClock, counted};
use sluice_domain::time::Time;

use super::Store;
use crate::filter::Page;
use crate::record::ResponseCount;

impl Store {
    /// Stores a clock after a look, or removes one that has ended. `false` if it does not run any more.
    pub fn keep_response(&mut self, change: &ResponseChange) -> bool {
        let clock = &change.clock;
        let Some(stored) = self.responses.get(&clock.event) else { return false };
        for result in counted(stored.state, clock.state) {
            self.history.add(Measure::Responses, &clock.flow, result);
        }
        match clock.state.is_open() {
            true => drop(self.responses.insert(clock.event, clock.clone())),
            false => drop(self.responses.remove(&clock.event)),
        }
        true
    }

    /// Clocks that are due, with what became of their events.
    pub fn due_responses(&self, now: Time, limit: u32) -> Vec<DueResponse> {
        let mut due: Vec<&ResponseClock> = self.responses.values().filter(|clock| clock.look_at <= now).collect();
        due.sort_by_key(|clock| (clock.look_at, clock.event));
        due.into_iter().take(limit as usize).map(|clock| self.due_response(clock)).collect()
    }

    fn due_response(&self, clock: &ResponseClock) -> DueResponse {
        let job = self.jobs.get(&clock.job).map(|row| {
            let job = &row.record;
            (job.state, job.finished_at.unwrap_or(job.updated_at))
        });
        let effect = clock
            .step
            .as_ref()
            .and_then(|step| self.effects(clock.job).into_iter().find(|effect| *effect.step_id == **step));
        let progress = Progress::of(job, effect.map(|effect| (effect.state, effect.last_at)));
        DueResponse { clock: clock.clone(), progress }
    }

    /// Clocks that run, newest event first.
    pub fn responses(&self, page: Page) -> Vec<ResponseClock> {
        let before = page.after.unwrap_or(i64::MAX);
        self.responses.range(..before).rev().take(page.limit as usize).map(|(_, clock)| clock.clone()).collect()
    }

    /// Clocks that run, by flow and state.
    pub fn response_counts(&self) -> Vec<ResponseCount> {
        let mut counts = BTreeMap::new();
        for clock in self.responses.values() {
            *counts.entry((clock.flow.clone(), clock.state)).or_insert(0) += 1;
        }
        counts.into_iter().map(|((flow, state), count)| ResponseCount { flow, state, count }).collect()
    }
}
