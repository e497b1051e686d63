//! Levels of a node at this moment: depths, ages and gates. Metrics and the history read the same ones.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_domain::job::JobState;
use sluice_domain::schedule::SchedulerView;
use sluice_ledger::Ledger;

use crate::clock::Clock;

/// Name of jobs that have no dead-letter queue.
const NO_QUEUE: &str = "none";

#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    /// Live jobs by worker and state.
    pub live: Vec<(String, JobState, u64)>,
    /// Age of the oldest live job of each worker.
    pub oldest: Vec<(String, Duration)>,
    /// Dead and unknown jobs of each dead-letter queue.
    pub dead_letters: BTreeMap<String, u64>,
    /// Age of the oldest dead or unknown job of each dead-letter queue.
    pub oldest_dead_letters: Vec<(String, Duration)>,
    pub unknown_outcomes: u64,
    /// State of the breaker of each destination: 0 closed, 1 half-open, 2 open.
    pub breakers: Vec<(String, u64)>,
    /// Destinations that are paused.
    pub paused: Vec<(String, bool)>,
}

impl Levels {
    /// `view` is absent without a running node.
    pub(crate) async fn read(
        ledger: &Ledger,
        clock: &Clock,
        view: Option<&SchedulerView>,
    ) -> Result<Levels, sluice_ledger::Error> {
        let now = clock.ledger_time();
        let oldest = ledger.oldest_jobs().await?;
        let queue_name = |queue: Option<&str>| queue.unwrap_or(NO_QUEUE).to_owned();
        let mut dead_letters: BTreeMap<String, u64> = BTreeMap::new();
        let mut unknown_outcomes = 0;
        for total in ledger.job_totals().await? {
            unknown_outcomes += if total.state == JobState::Unknown { total.count } else { 0 };
            if matches!(total.state, JobState::Dead | JobState::Unknown) {
                *dead_letters.entry(queue_name(total.dead_letter_queue.as_deref())).or_default() += total.count;
            }
        }
        let gates = || view.into_iter().flat_map(|view| &view.gates);
        Ok(Levels {
            live: ledger.live_counts().await?,
            oldest: oldest.live.iter().map(|(worker, at)| (worker.to_string(), now.since(*at))).collect(),
            dead_letters,
            unknown_outcomes,
            oldest_dead_letters: oldest
                .dead_letters
                .iter()
                .map(|(queue, at)| (queue_name(queue.as_deref()), now.since(*at)))
                .collect(),
            breakers: gates().map(|(name, gate)| (name.clone(), breaker_level(gate.breaker))).collect(),
            paused: gates().map(|(name, gate)| (name.clone(), gate.paused.is_some())).collect(),
        })
    }
}

fn breaker_level(state: &str) -> u64 {
    match state {
        "closed" => 0,
        "half-open" => 1,
        _ => 2,
    }
}
