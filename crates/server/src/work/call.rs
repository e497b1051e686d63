//! Calls a destination for a run, and records the intent as the run asks.

use sluice_connectors::{Call, Connectors};
use sluice_domain::outcome::{Outcome, Readback};
use sluice_domain::run::{CallBatch, Input, JobRun, RECORD_AFTER, Recording, StepCall, timed_out};

use super::WorkContext;

/// Makes the calls of a batch. The run of one job makes one.
pub(super) async fn call(context: &WorkContext, run: &JobRun, batch: CallBatch) -> Result<Input, sluice_ledger::Error> {
    let (Some(call), Some(recording)) = (batch.calls.first(), batch.recording.into_iter().next()) else {
        return Ok(Input::Done);
    };
    let connectors = context.revisions.connectors(&run.job().revision, &call.destination);
    let started = context.clock.now();
    let (outcome, recorded) = make(context, &connectors, call, recording).await?;
    let took = context.clock.now().since(started);
    let event = run.event();
    context.metrics.attempt(&call.destination, outcome.as_str(), took, &event.trace);
    if matches!(outcome, Outcome::Done { .. }) {
        let since_received = context.clock.ledger_time().since(event.received_at);
        context.metrics.effect(&call.destination, since_received, &event.trace);
    }
    let failed = outcome.failure().is_some() && !matches!(outcome, Outcome::Wait { .. });
    if let Some(worker) = run.worker().filter(|worker| !worker.safe_mode.when.is_empty()) {
        Box::pin(context.safe_modes.attempted(worker, failed, context.clock.ledger_time())).await;
    }
    Ok(Input::Called { outcome, recorded })
}

/// One call, given up after its time-out. Answers whether the intent was submitted before the outcome was known.
async fn make(
    context: &WorkContext,
    connectors: &Connectors,
    call: &StepCall,
    recording: Recording,
) -> Result<(Outcome, bool), sluice_ledger::Error> {
    let effect_key = call.effect_key.to_string();
    let calling = tokio::time::timeout(call.timeout, connectors.call(request(call, &effect_key)));
    let mut calling = std::pin::pin!(calling);
    let (outcome, recorded) = match recording {
        Recording::Done => (calling.await, true),
        Recording::Before(begin) => {
            context.ledger.begin_without_waiting(*begin).await?;
            (calling.await, true)
        }
        Recording::IfSlow(begin) => match tokio::time::timeout(RECORD_AFTER, calling.as_mut()).await {
            Ok(outcome) => (outcome, false),
            Err(_) => {
                context.ledger.begin_without_waiting(*begin).await?;
                (calling.await, true)
            }
        },
    };
    Ok((outcome.unwrap_or_else(|_| Outcome::Unsure { failure: timed_out(call.timeout) }), recorded))
}

/// Asks the destination how an earlier call ended.
pub(super) async fn read_back(context: &WorkContext, run: &JobRun, call: StepCall) -> Input {
    let connectors = context.revisions.connectors(&run.job().revision, &call.destination);
    let effect_key = call.effect_key.to_string();
    let readback = tokio::time::timeout(call.timeout, connectors.read_back(request(&call, &effect_key))).await;
    Input::ReadBack(readback.unwrap_or_else(|_| Readback::Unreadable(timed_out(call.timeout))))
}

fn request<'a>(call: &'a StepCall, effect_key: &'a str) -> Call<'a> {
    Call {
        action: call.action,
        destination: &call.destination,
        with: &call.with,
        effect_key,
        message_key: call.message_key.as_deref(),
        attempt: call.attempt,
        traceparent: Some(&call.traceparent),
        timeout: call.timeout,
        now: call.at,
    }
}
