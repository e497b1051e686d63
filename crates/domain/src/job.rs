//! A job: one event × one worker, and the states it goes through.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::digest::{DigestContext, write_parts};
use crate::event::EventId;
use crate::mutant::Mutant;

/// Names a job. Ascending in the order of acceptance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct JobId(pub i64);

/// Number of an ownership of jobs: a new one for each process that opens the ledger. What an owner writes carries its term, so
/// that a write of an older owner is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Term(pub u32);

impl JobId {
    /// Reads `job_17` or `17`.
    pub fn parse(text: &str) -> Option<JobId> {
        let text = text.trim();
        text.strip_prefix("job_").unwrap_or(text).parse().ok().filter(|id| *id > 0).map(JobId)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job_{}", self.0)
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for JobId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a job stands. `docs/lifecycle.md` draws this; a test compares the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Accepted or replayed, not yet tried since.
    Queued,
    /// An attempt is under way.
    Running,
    /// Failed for now; due again later.
    Retrying,
    /// Held by something else than its own failure: the destination asked everybody to wait, an outcome is being read back,
    /// a person is asked, or a policy or safe mode puts it off.
    Waiting,
    /// Every step is done.
    Succeeded,
    /// Nothing had to be done.
    Noop,
    /// Failed for good: a dead letter.
    Dead,
    /// An effect may have happened and nobody can tell: a person decides.
    Unknown,
    /// Given up by a person, or older than its dead-letter queue keeps things.
    Dropped,
}

impl JobState {
    pub const ALL: [JobState; 9] = [
        JobState::Queued,
        JobState::Running,
        JobState::Retrying,
        JobState::Waiting,
        JobState::Succeeded,
        JobState::Noop,
        JobState::Dead,
        JobState::Unknown,
        JobState::Dropped,
    ];

    /// The word that people see.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Running => "running",
            JobState::Retrying => "retrying",
            JobState::Waiting => "waiting",
            JobState::Succeeded => "succeeded",
            JobState::Noop => "noop",
            JobState::Dead => "dead",
            JobState::Unknown => "unknown",
            JobState::Dropped => "dropped",
        }
    }

    /// The state that this word names.
    pub fn parse(word: &str) -> Option<JobState> {
        JobState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// The number that the ledger keeps. Live states come before [`JobState::LIVE_BELOW`].
    pub fn code(self) -> i64 {
        match self {
            JobState::Queued => 0,
            JobState::Running => 1,
            JobState::Retrying => 2,
            JobState::Waiting => 3,
            JobState::Succeeded => 8,
            JobState::Noop => 9,
            JobState::Dead => 10,
            JobState::Unknown => 11,
            JobState::Dropped => 12,
        }
    }

    /// The first number that is no longer live.
    pub(crate) const LIVE_BELOW: i64 = 8;

    /// The state that this number stands for.
    pub fn from_code(code: i64) -> Option<JobState> {
        JobState::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Whether the scheduler still has something to do with it.
    pub fn is_live(self) -> bool {
        self.code() < JobState::LIVE_BELOW
    }

    /// Whether a job may go from this state to that one.
    pub fn may_become(self, next: JobState) -> bool {
        use JobState::*;
        match self {
            // Without an attempt it can still end: every step was passed over, or it cannot be prepared. One that was replayed
            // may be read back first, with everything that this can end in.
            Queued => matches!(next, Running | Retrying | Waiting | Succeeded | Noop | Dead | Unknown),
            // Without an attempt too: its next item is not due yet, or what it did is to be taken back.
            // A policy is asked before every attempt: it may refuse one that failed before, or put it off.
            Retrying => matches!(next, Queued | Running | Waiting | Succeeded | Noop | Dead),
            Running => matches!(next, Queued | Retrying | Waiting | Succeeded | Noop | Dead | Unknown),
            // A read-back is no attempt, and it can end in everything that an attempt can.
            Waiting => next != Dropped,
            // A person replays it, says what became of it, or gives it up.
            Dead | Unknown => matches!(next, Queued | Dropped),
            Succeeded | Noop => next == Queued,
            Dropped => false,
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names one outward action for ever: the same over retries, restarts, replays and changes of configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EffectKey(pub [u8; 16]);

impl EffectKey {
    /// The key of what this step of this worker does for this event.
    pub fn new(event: EventId, worker: &str, step: &str) -> EffectKey {
        static KIND: DigestContext = DigestContext::new("sluice effect key");
        EffectKey(KIND.of(|hasher| write_parts(hasher.update(&event.0), &[worker, step])))
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "eff_{}", data_encoding::HEXLOWER.encode_display(&self.0))
    }
}

impl fmt::Debug for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Where an effect stands. `Applied` and `Skipped` are final, unless an operator asks to apply it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// Written down before it is done; an attempt may be under way.
    Intent,
    Applied,
    /// Nothing had to be done.
    Skipped,
    /// Surely not done.
    NotApplied,
    /// May have been done.
    Unknown,
    /// Done, and perhaps overwritten since by a call that was applied late: the record is compared with it.
    Rechecking,
    /// Done, and an operator asked to do it again: another effect takes its place.
    Superseded,
    /// Not done, and its event was edited: another effect takes its place.
    Abandoned,
}

impl EffectState {
    /// Every state.
    pub const ALL: [EffectState; 8] = [
        EffectState::Intent,
        EffectState::Applied,
        EffectState::Skipped,
        EffectState::NotApplied,
        EffectState::Unknown,
        EffectState::Rechecking,
        EffectState::Superseded,
        EffectState::Abandoned,
    ];

    /// The word that people see and the ledger keeps.
    pub fn as_str(self) -> &'static str {
        match self {
            EffectState::Intent => "intent",
            EffectState::Applied => "applied",
            EffectState::Skipped => "skipped",
            EffectState::NotApplied => "not_applied",
            EffectState::Unknown => "unknown",
            EffectState::Rechecking => "rechecking",
            EffectState::Superseded => "superseded",
            EffectState::Abandoned => "abandoned",
        }
    }

    /// The state that this word names.
    pub fn parse(word: &str) -> Option<EffectState> {
        EffectState::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether the step behind it is finished.
    pub fn is_final(self) -> bool {
        matches!(self, EffectState::Applied | EffectState::Skipped)
    }

    /// The state once the intent of another attempt is recorded. A write that is compared stays so until it is made again.
    pub fn begun(self) -> EffectState {
        if self == EffectState::Rechecking { self } else { EffectState::Intent }
    }

    /// Whether another effect takes the place of this one.
    pub fn is_replaced(self) -> bool {
        matches!(self, EffectState::Superseded | EffectState::Abandoned)
    }

    /// Whether the effect must not be begun again.
    pub fn is_absorbing(self) -> bool {
        self.is_final() && !Mutant::AppliedNotAbsorbing.is_on()
    }

    /// Whether the effect was begun and its outcome is not known.
    pub fn is_open(self) -> bool {
        matches!(self, EffectState::Intent | EffectState::Unknown)
    }
}

/// The id of the record that an effect wrote, from its result: a text or number `id` or `record_id`.
pub fn written_record(result: &serde_json::Value) -> Option<String> {
    ["id", "record_id"].iter().find_map(|name| match result.get(name)? {
        serde_json::Value::String(id) if !id.is_empty() => Some(id.clone()),
        serde_json::Value::Number(id) => Some(id.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyDigest;

    #[test]
    fn words_and_numbers_read_back() {
        for state in JobState::ALL {
            assert_eq!(JobState::parse(state.as_str()), Some(state));
            assert_eq!(JobState::from_code(state.code()), Some(state));
        }
        assert_eq!(JobId::parse("job_17"), Some(JobId(17)));
        assert_eq!(JobId::parse("17"), Some(JobId(17)));
        assert_eq!(JobId::parse("job_-1"), None);
    }

    #[test]
    fn effect_keys_tell_event_worker_and_step_apart() {
        let event = |n| EventId::new(KeyDigest([n; 16]), 0);
        let key = EffectKey::new(event(1), "w", "s");
        assert_eq!(key, EffectKey::new(event(1), "w", "s"));
        for other in
            [EffectKey::new(event(2), "w", "s"), EffectKey::new(event(1), "ws", ""), EffectKey::new(event(1), "w", "t")]
        {
            assert_ne!(key, other);
        }
    }
}
