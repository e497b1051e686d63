//! A job that was loaded as running: its attempt was interrupted, and nobody saw how it ended.

use std::sync::Arc;
use std::time::Duration;

use super::compare::UnknownCall;
use super::settle::Written;
use super::{Command, JobRun, RunContext};
use crate::contact::WriteRecord;
use crate::job::EffectState;
use crate::ops::{AttemptSettlement, EffectSettlement};
use crate::random::Random;
use crate::record::{AttemptKind, EffectRecord};
use crate::retry::RetryPolicy;
use crate::time::Time;
use crate::transition::{Interrupted, JobUpdate, interrupted_next};

impl JobRun {
    /// Settles the interrupted attempt by the rules of its effect's class: the same function decides as after a time-out.
    pub(super) fn settle_interrupted(&mut self, context: RunContext) -> Command {
        let intent = self.intent.take();
        // Steps that were passed over before the attempt are not in the job's row: the job stands where the effect was begun.
        self.job.step = intent.as_ref().map_or(self.job.step, |effect| effect.step);
        let place = self.job.step;
        let worker = self.worker.clone();
        let step = worker.as_ref().and_then(|worker| worker.step_at(place));
        let standard = RetryPolicy::standard();
        let interrupted = Interrupted {
            effect: intent.as_ref().map(|effect| effect.class),
            resend_allowed: step.is_some_and(|step| step.resend_allowed),
            policy: worker.as_ref().map_or(&standard, |worker| worker.retry_for(place)),
            attempts: self.job.attempts,
            late_window: step.map_or(Duration::ZERO, |step| self.late_window(step)),
            now: context.now,
        };
        let mut random = Random::seeded(self.job.id.0 as u64 ^ context.at.0 as u64);
        let (next, attempts) = interrupted_next(interrupted, &mut random);
        let update = self.decided(next, attempts, context.at);
        let late_until = step.and_then(|step| self.late_until(step, UnknownCall::Interrupted, context.now));
        let compared = self.compared.is_some() && update.state.is_live();
        let state = if compared { EffectState::Rechecking } else { EffectState::Unknown };
        let mut written =
            intent.map_or_else(Written::default, |effect| interrupted_effect(&effect, state, &update, late_until));
        written.write = step.filter(|step| step.merged.is_some()).map(|step| WriteRecord::in_doubt(self.slot(step)));
        self.settle(update, written, context)
    }
}

/// The attempt at the effect ends as interrupted.
fn interrupted_effect(
    effect: &EffectRecord,
    state: EffectState,
    update: &JobUpdate,
    late_until: Option<Time>,
) -> Written {
    Written {
        effect: Some(EffectSettlement {
            key: effect.key,
            step: effect.step,
            state,
            result: None,
            absent_reads: 0,
            reads: 0,
            late_until,
        }),
        attempt: Some(AttemptSettlement {
            step_id: Arc::from(effect.step_id.as_str()),
            kind: AttemptKind::Call,
            started_at: effect.last_at,
            outcome: "interrupted",
            failure: update.failure.clone(),
        }),
        begin: None,
        write: None,
        health: None,
    }
}
