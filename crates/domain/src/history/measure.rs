//! What is measured: one row per measure.

use crate::job::JobState;

/// A quantity of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    Accepted,
    Duplicates,
    Clashes,
    LateDuplicates,
    Refused,
    Jobs,
    ReplayedJobs,
    Attempts,
    CallSeconds,
    EffectSeconds,
    QueueSeconds,
    JobsLive,
    OldestJobSeconds,
    DeadLetters,
    OldestDeadLetterSeconds,
    Breaker,
    Effects,
    QuietSeconds,
    SignalSeconds,
    Responses,
    ResponseSeconds,
    WaitSeconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Description of a measure.
#[derive(Clone, Copy, Debug)]
pub struct MeasureSpec {
    pub measure: Measure,
    /// As the API names it.
    pub name: &'static str,
    /// In stored rows; never changes.
    pub code: u8,
    pub kind: Kind,
    /// Names of its labels, at most two.
    pub labels: &'static [&'static str],
    pub about: &'static str,
}

use Kind::{Counter, Gauge, Histogram};

/// All measures, in the order of their codes.
pub const MEASURES: [MeasureSpec; 22] = [
    row(Measure::Accepted, "accepted", Counter, &["source"], "New events."),
    row(Measure::Duplicates, "duplicates", Counter, &["source"], "Duplicates within the lifetime of their key."),
    row(Measure::Clashes, "key_clashes", Counter, &["source"], "Requests with a known key and different content."),
    row(
        Measure::LateDuplicates,
        "late_duplicates",
        Counter,
        &["source"],
        "Requests whose key was taken before and had expired: each became a new event.",
    ),
    row(Measure::Refused, "refused", Counter, &["source", "code"], "Rejected requests, by problem code."),
    row(Measure::Jobs, "jobs", Counter, &["worker", "state"], "Jobs that ended and had not been replayed, by state."),
    row(Measure::ReplayedJobs, "replayed_jobs", Counter, &["worker", "state"], "Replayed jobs that ended, by state."),
    row(Measure::Attempts, "attempts", Counter, &["destination", "outcome"], "Calls of destinations, by outcome."),
    row(Measure::CallSeconds, "call_seconds", Histogram, &["destination"], "Duration of calls."),
    row(
        Measure::EffectSeconds,
        "effect_seconds",
        Histogram,
        &["destination"],
        "From receiving the request to the applied effect.",
    ),
    row(
        Measure::QueueSeconds,
        "queue_seconds",
        Histogram,
        &["worker"],
        "From accepting the event to the first run of its job.",
    ),
    row(Measure::JobsLive, "jobs_live", Gauge, &["worker", "state"], "Live jobs."),
    row(Measure::OldestJobSeconds, "oldest_job_seconds", Gauge, &["worker"], "Age of the oldest live job."),
    row(Measure::DeadLetters, "dead_letters", Gauge, &["queue"], "Dead and unknown jobs of a dead-letter queue."),
    row(
        Measure::OldestDeadLetterSeconds,
        "oldest_dead_letter_seconds",
        Gauge,
        &["queue"],
        "Age of the oldest dead letter.",
    ),
    row(Measure::Breaker, "breaker", Gauge, &["destination"], "Circuit breaker: 0 closed, 1 half-open, 2 open."),
    row(
        Measure::Effects,
        "effects",
        Counter,
        &["destination", "class"],
        "Effects that a call applied, by effect class.",
    ),
    row(
        Measure::QuietSeconds,
        "quiet_seconds",
        Gauge,
        &["source"],
        "Time without an event since the hour began; the most of an hour is its longest gap.",
    ),
    row(
        Measure::SignalSeconds,
        "signal_seconds",
        Histogram,
        &["alert"],
        "From the beginning of what an alert tells of to the delivered notice.",
    ),
    row(
        Measure::Responses,
        "responses",
        Counter,
        &["flow", "result"],
        "Response clocks: escalated, and those that ended as met, missed or given_up.",
    ),
    row(
        Measure::ResponseSeconds,
        "response_seconds",
        Histogram,
        &["flow"],
        "From receiving the request to the effect that answers it.",
    ),
    row(
        Measure::WaitSeconds,
        "wait_seconds",
        Histogram,
        &["destination"],
        "From the due time of a job to its call: what the gate, the slots and the node itself add.",
    ),
];

const fn row(
    measure: Measure,
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    about: &'static str,
) -> MeasureSpec {
    MeasureSpec { measure, name, code: measure as u8 + 1, kind, labels, about }
}

impl Measure {
    pub fn spec(self) -> &'static MeasureSpec {
        &MEASURES[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.spec().name
    }

    pub fn parse(name: &str) -> Option<Measure> {
        MEASURES.iter().find(|spec| spec.name == name).map(|spec| spec.measure)
    }

    pub fn code(self) -> u8 {
        self.spec().code
    }

    pub fn from_code(code: u8) -> Option<Measure> {
        MEASURES.iter().find(|spec| spec.code == code).map(|spec| spec.measure)
    }

    pub fn kind(self) -> Kind {
        self.spec().kind
    }

    /// What a job counts under when it comes to this state; `None` if it is live.
    pub fn of_job_end(state: JobState, replays: u32) -> Option<Measure> {
        match (state.is_live(), replays) {
            (true, _) => None,
            (false, 0) => Some(Measure::Jobs),
            (false, _) => Some(Measure::ReplayedJobs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_measure_has_its_row() {
        for (place, spec) in MEASURES.iter().enumerate() {
            assert_eq!((spec.measure as usize, usize::from(spec.code)), (place, place + 1), "{}", spec.name);
            assert_eq!(
                (Measure::parse(spec.name), Measure::from_code(spec.code)),
                (Some(spec.measure), Some(spec.measure))
            );
            assert!(spec.labels.len() <= 2, "{}", spec.name);
        }
    }
}
