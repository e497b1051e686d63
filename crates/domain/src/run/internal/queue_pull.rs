//! `queue_pull`: chooses dead letters.
//!
//! Recorded are the ids of the jobs, never their content: a body belongs to its event, and goes when that goes.

use serde_json::{Value, json};

use super::super::Command;
use super::{InternalOutcome, InternalStep};
use crate::job::JobId;

pub(super) fn pull(with: &Value) -> InternalOutcome {
    let number = |name: &str, default: u64| with[name].as_u64().unwrap_or(default);
    let command = Command::PullDeadLetters {
        queue: with["from"].as_str().unwrap_or_default().to_owned(),
        limit: number("max_messages", 20) as usize,
        replays_max: u32::try_from(number("max_replays", 5)).unwrap_or(u32::MAX),
    };
    InternalOutcome::ask(command, InternalStep::Pull)
}

/// As the result of the step is recorded.
pub(super) fn recorded(jobs: &[JobId]) -> Value {
    json!({ "jobs": jobs })
}

/// The jobs of a recorded result.
pub(in crate::run) fn pulled_jobs(recorded: &Value) -> Vec<JobId> {
    recorded["jobs"].as_array().into_iter().flatten().filter_map(|id| JobId::parse(id.as_str()?)).collect()
}
