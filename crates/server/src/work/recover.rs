//! After a crash: attempts that nobody saw the end of.

use std::sync::Arc;

use sluice_domain::job::{EffectState, JobId, JobState};
use sluice_domain::outputs::Outputs;
use sluice_domain::random::Random;
use sluice_domain::retry::RetryPolicy;
use sluice_domain::transition::{Interrupted, interrupted_next};
use sluice_ledger::{ChargeResult, InterruptedEffect, JobRecord, Settlement};

use super::WorkContext;
use super::budget;
use super::decide::decide;
use super::job_effects::JobEffects;

/// Jobs that are settled in one go.
const SLICE: u32 = 512;

/// Settles every attempt that was under way when the last process ended, by the rules of its effect's class: the same
/// function decides as after a time-out. Answers how many there were.
pub async fn recover(context: &WorkContext) -> Result<u64, sluice_ledger::Error> {
    let mut settled = 0;
    let mut after = JobId(0);
    loop {
        let jobs = context.ledger.running_jobs(after, SLICE).await?;
        let Some(last) = jobs.last() else { return Ok(settled) };
        after = last.id;
        for job in jobs {
            settle_interrupted(context, job).await?;
            settled += 1;
        }
    }
}

/// Settles one job whose run was lost, if nobody else has, and answers how it stands.
pub async fn recover_one(context: &WorkContext, id: JobId) -> Result<Option<JobRecord>, sluice_ledger::Error> {
    match context.ledger.job(id).await? {
        Some(job) if job.state == JobState::Running => settle_interrupted(context, job).await?,
        other => return Ok(other),
    }
    context.ledger.job(id).await
}

async fn settle_interrupted(context: &WorkContext, job: JobRecord) -> Result<(), sluice_ledger::Error> {
    let pinned = context.revisions.get(&job.revision, &context.ledger).await;
    let worker = pinned.as_ref().and_then(|live| context.revisions.worker(live, &job.worker));
    let effects = context.ledger.effects(job.id).await?;
    // Steps that were passed over before it are not in the job's row: where the effect was begun, there the job stands.
    let effect = effects.iter().find(|effect| effect.state == EffectState::Intent);
    let place = effect.map_or(job.step, |effect| effect.step);
    let step = worker.as_ref().and_then(|worker| worker.step_at(place));
    let event = context.ledger.events(vec![job.seq]).await?.pop();
    let at = context.clock.wall();
    let standard = RetryPolicy::standard();
    let dead_letter_queue = match (&pinned, &worker) {
        (Some(live), Some(worker)) => super::dead_letter_queue(&context.revisions.current(), live, worker),
        _ => None,
    };
    let case = Interrupted {
        effect: effect.map(|effect| effect.class),
        resend_allowed: step.is_some_and(|step| step.resend_allowed),
        policy: worker.as_ref().map_or(&standard, |worker| worker.retry_for(place)),
        step: place,
        attempts: job.attempts,
        dead_letter_queue: dead_letter_queue.as_deref(),
        now: context.clock.now(),
        at,
    };
    let (next, attempts) = interrupted_next(case, &mut Random::seeded(job.id.0 as u64 ^ at.0 as u64));
    let outputs = Outputs::default();
    let standing = case.standing(attempts, &outputs);
    let books = event.map(|(event, _)| JobEffects::new(event.id, &job.worker, effects.clone()));
    let decided = |next| match (&worker, &books) {
        (Some(worker), Some(books)) => decide(worker, books, &job, standing, next),
        _ => standing.after(next),
    };
    let next = decided(next);
    let draw = worker.as_ref().and_then(|worker| budget::draw(worker, place, &next, at, decided));
    let unseen = effect.map(|effect| InterruptedEffect {
        key: effect.key,
        step: effect.step,
        step_id: Arc::from(effect.step_id.as_str()),
        since: effect.last_at,
    });
    let settlement = Settlement::interrupted(&job, unseen, next, at);
    if budget::settle(&context.ledger, None, &settlement, draw.as_ref()).await? == ChargeResult::Exhausted {
        context.metrics.retry_budget_exhausted(&job.worker);
    }
    Ok(())
}
