//! The end of an attempt that nobody saw, as it is written down after a crash.

use std::sync::Arc;

use sluice_domain::job::{EffectKey, EffectState};
use sluice_domain::time::Time;

use crate::op::{AttemptSettlement, EffectSettlement, JobUpdate, Settlement};
use crate::record::{AttemptKind, JobRecord};

/// An effect that was begun, and whose attempt nobody saw the end of.
#[derive(Clone, Debug)]
pub struct InterruptedEffect {
    /// Its name for ever.
    pub key: EffectKey,
    /// The place of its step.
    pub step: u32,
    /// The name of its step.
    pub step_id: Arc<str>,
    /// When it was begun.
    pub since: Time,
}

impl Settlement {
    /// What is written about a job that was running when its process ended. `unseen` is the effect that was under way, if one was.
    pub fn interrupted(job: &JobRecord, unseen: Option<InterruptedEffect>, next: JobUpdate, at: Time) -> Settlement {
        let effect = unseen.as_ref().map(|unseen| EffectSettlement {
            key: unseen.key,
            step: unseen.step,
            state: EffectState::Unknown,
            result: None,
            absent_reads: 0,
            reads: 0,
        });
        let attempt = unseen.map(|unseen| AttemptSettlement {
            step_id: unseen.step_id,
            kind: AttemptKind::Call,
            started_at: unseen.since,
            outcome: "interrupted",
            failure: next.failure.clone(),
        });
        Settlement { job: job.id, n: job.attempts_total, effect, attempt, next, at }
    }
}
