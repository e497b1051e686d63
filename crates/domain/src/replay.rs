//! Replays: which jobs may be replayed, how fast, and what is applied again.
//!
//! A replay is durable: a filter, a place behind the last job that was looked at, and counts. It takes the jobs in batches and
//! continues after a restart where it was.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::job::{EffectState, JobState};
use crate::outcome::EffectClass;
use crate::random::Random;
use crate::time::Time;
use crate::unit::Rate;

/// Jobs of one batch unless the operator sets another number.
pub const BATCH: u32 = 100;
/// Largest batch: one transaction.
pub const BATCH_MAX: u32 = 500;

/// Names a replay: `replay_7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplayId(pub i64);

impl ReplayId {
    /// Reads `replay_7` or `7`.
    pub fn parse(text: &str) -> Option<ReplayId> {
        let text = text.trim();
        text.strip_prefix("replay_").unwrap_or(text).parse().ok().filter(|id| *id > 0).map(ReplayId)
    }
}

impl fmt::Display for ReplayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "replay_{}", self.0)
    }
}

/// State of a replay. `Done` and `Cancelled` are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplayState {
    Running,
    Paused,
    Cancelled,
    Done,
}

impl ReplayState {
    pub const ALL: [ReplayState; 4] =
        [ReplayState::Running, ReplayState::Paused, ReplayState::Cancelled, ReplayState::Done];

    /// As stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            ReplayState::Running => "running",
            ReplayState::Paused => "paused",
            ReplayState::Cancelled => "cancelled",
            ReplayState::Done => "done",
        }
    }

    pub fn parse(word: &str) -> Option<ReplayState> {
        ReplayState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether an operator may bring a replay from this state to that one. The same state again is allowed.
    pub fn may_become(self, next: ReplayState) -> bool {
        match self {
            ReplayState::Running | ReplayState::Paused => next != ReplayState::Done,
            ReplayState::Cancelled | ReplayState::Done => self == next,
        }
    }
}

/// Why a job is not replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReplayable {
    /// It is live: it runs anyway.
    Live(JobState),
    /// Its effect may have been applied; an operator has to resolve it first.
    Unknown,
    Dropped,
}

impl fmt::Display for NotReplayable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReplayable::Live(state) => write!(f, "it is {state} already"),
            NotReplayable::Unknown => f.write_str("its effect may have been applied; use `sluice jobs resolve`"),
            NotReplayable::Dropped => f.write_str("it was dropped"),
        }
    }
}

/// Whether a job in this state may be replayed.
pub fn replayable(state: JobState) -> Result<(), NotReplayable> {
    match state {
        JobState::Succeeded | JobState::Noop | JobState::Dead => Ok(()),
        JobState::Unknown => Err(NotReplayable::Unknown),
        JobState::Dropped => Err(NotReplayable::Dropped),
        JobState::Queued | JobState::Running | JobState::Retrying | JobState::Waiting => {
            Err(NotReplayable::Live(state))
        }
    }
}

/// Classes of effects that a replay applies again although they are applied. Each is another effect with another key; the first one
/// stays on record as superseded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Reapply(pub Vec<EffectClass>);

impl Reapply {
    /// Classes whose repetition overwrites what was written before and adds nothing.
    pub const OVERWRITING: [EffectClass; 2] = [EffectClass::Natural, EffectClass::Transactional];

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an effect is applied again.
    pub fn supersedes(&self, class: EffectClass, state: EffectState) -> bool {
        state == EffectState::Applied && self.0.contains(&class)
    }
}

impl fmt::Display for Reapply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(|class| class.as_str()).collect();
        f.write_str(&words.join(", "))
    }
}

/// When the next batch of a replay may start: the jobs of the last one at the given rate, and up to a tenth more, so that
/// several replays do not stay in step.
pub fn next_batch_at(at: Time, jobs: usize, rate: Option<Rate>, random: &mut Random) -> Time {
    let Some(rate) = rate else { return at };
    let jobs = u32::try_from(jobs).unwrap_or(u32::MAX);
    at + rate.interval().saturating_mul(jobs).mul_f64(1.0 + random.unit() / 10.0)
}

/// How long a replay takes at the least: its jobs at its own rate, and the calls of each destination at that one's rate.
pub fn least_duration(
    jobs: u64,
    rate: Option<Rate>,
    destinations: impl Iterator<Item = (u64, Option<Rate>)>,
) -> Option<Duration> {
    let at_rate = |count: u64, rate: Option<Rate>| Some(rate?.interval().mul_f64(count as f64));
    let own = at_rate(jobs, rate);
    destinations.filter_map(|(calls, rate)| at_rate(calls, rate)).chain(own).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit;

    #[test]
    fn only_finished_and_dead_jobs_are_replayable() {
        let allowed: Vec<JobState> = JobState::ALL.into_iter().filter(|state| replayable(*state).is_ok()).collect();
        assert_eq!(allowed, [JobState::Succeeded, JobState::Noop, JobState::Dead]);
        assert!(allowed.iter().all(|state| state.may_become(JobState::Queued)));
    }

    #[test]
    fn a_finished_replay_stays_finished() {
        use ReplayState::*;
        assert!(Running.may_become(Paused) && Paused.may_become(Running) && Paused.may_become(Cancelled));
        assert!(!Cancelled.may_become(Running) && !Done.may_become(Running) && !Running.may_become(Done));
        assert_eq!(ReplayId::parse("replay_7"), Some(ReplayId(7)));
        assert_eq!(ReplayId::parse("replay_-7"), None);
        for state in ReplayState::ALL {
            assert_eq!(ReplayState::parse(state.as_str()), Some(state));
        }
    }

    #[test]
    fn batches_keep_the_rate_of_the_replay() {
        let rate = Some(unit::rate("10/s").unwrap());
        let mut random = Random::seeded(4);
        let next = next_batch_at(Time(1_000), 50, rate, &mut random);
        assert!((Time(6_000)..=Time(6_500)).contains(&next), "{next:?}");
        assert_eq!(next_batch_at(Time(1_000), 50, None, &mut random), Time(1_000));
    }

    #[test]
    fn the_slowest_rate_decides_how_long_it_takes() {
        let rate = |text: &str| Some(unit::rate(text).unwrap());
        let took = |own, destinations: Vec<(u64, Option<Rate>)>| least_duration(100, own, destinations.into_iter());
        assert_eq!(took(None, vec![(100, None)]), None);
        assert_eq!(took(rate("10/s"), vec![(200, rate("100/s"))]), Some(Duration::from_secs(10)));
        assert_eq!(took(rate("10/s"), vec![(200, rate("5/s"))]), Some(Duration::from_secs(40)));
    }
}
