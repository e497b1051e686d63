//! Status of an event: the worst of its jobs.

use std::fmt;

use crate::job::JobState;

/// What has become of an event, over all its jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventStatus {
    /// No worker handles it.
    Unrouted,
    /// A job is a dead letter.
    Dead,
    /// A job has an effect of unknown outcome.
    Unknown,
    /// A job is live.
    Working,
    /// A job was dropped.
    Dropped,
    /// Every job has succeeded or had nothing to do.
    Done,
}

impl EventStatus {
    pub const ALL: [EventStatus; 6] = [
        EventStatus::Working,
        EventStatus::Done,
        EventStatus::Dead,
        EventStatus::Unknown,
        EventStatus::Dropped,
        EventStatus::Unrouted,
    ];

    /// The status of an event whose jobs are in these states.
    pub fn of(jobs: impl Iterator<Item = JobState> + Clone) -> EventStatus {
        let any = |wanted: JobState| jobs.clone().any(|state| state == wanted);
        if jobs.clone().next().is_none() {
            EventStatus::Unrouted
        } else if any(JobState::Dead) {
            EventStatus::Dead
        } else if any(JobState::Unknown) {
            EventStatus::Unknown
        } else if jobs.clone().any(JobState::is_live) {
            EventStatus::Working
        } else if any(JobState::Dropped) {
            EventStatus::Dropped
        } else {
            EventStatus::Done
        }
    }

    /// States of jobs of which every event with this status has one; empty if it has no jobs.
    pub fn has_job_in(self) -> &'static [JobState] {
        match self {
            EventStatus::Dead => &[JobState::Dead],
            EventStatus::Unknown => &[JobState::Unknown],
            EventStatus::Working => &[JobState::Queued, JobState::Running, JobState::Retrying, JobState::Waiting],
            EventStatus::Dropped => &[JobState::Dropped],
            EventStatus::Done => &[JobState::Succeeded, JobState::Noop],
            EventStatus::Unrouted => &[],
        }
    }

    /// As shown.
    pub fn as_str(self) -> &'static str {
        match self {
            EventStatus::Unrouted => "unrouted",
            EventStatus::Dead => "dead",
            EventStatus::Unknown => "unknown",
            EventStatus::Working => "working",
            EventStatus::Dropped => "dropped",
            EventStatus::Done => "done",
        }
    }

    pub fn parse(word: &str) -> Option<EventStatus> {
        EventStatus::ALL.into_iter().find(|status| status.as_str() == word)
    }
}

impl fmt::Display for EventStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_job_decides() {
        use JobState::*;
        for (jobs, status) in [
            (&[][..], EventStatus::Unrouted),
            (&[Succeeded, Noop], EventStatus::Done),
            (&[Succeeded, Dropped], EventStatus::Dropped),
            (&[Dropped, Retrying], EventStatus::Working),
            (&[Queued, Unknown], EventStatus::Unknown),
            (&[Unknown, Dead, Queued], EventStatus::Dead),
        ] {
            assert_eq!(EventStatus::of(jobs.iter().copied()), status);
            assert_eq!(EventStatus::parse(status.as_str()), Some(status));
            let needed = status.has_job_in();
            assert!(needed.is_empty() || jobs.iter().any(|job| needed.contains(job)));
        }
    }
}
