//! Calls a destination for a run, and records the intent as the run asks.

use std::sync::Arc;

use sluice_connectors::{Call, Connectors};
use sluice_domain::outcome::{Outcome, Readback};
use sluice_domain::run::{CallBatch, Input, RECORD_AFTER, Recording, StepCall, timed_out};

use super::telemetry::{self, CallEnd, CallFacts};
use super::{Member, WorkContext};

/// Makes the calls of a batch, as one request where the connector can. Answers for each call with its outcome, and whether its
/// intent was submitted before the outcome was known.
pub(super) async fn call(
    context: &WorkContext,
    members: &[Member],
    batch: CallBatch,
) -> Result<Vec<(Outcome, bool)>, sluice_ledger::Error> {
    let (Some(first), Some(member)) = (batch.calls.first(), members.first()) else { return Ok(vec![]) };
    let connectors = connectors(context, member, &first.destination);
    let facts: Vec<CallFacts> = batch.calls.iter().map(|call| CallFacts::of(context, call)).collect();
    let sent = facts.first().and_then(CallFacts::context);
    let started = context.clock.now();
    let answered = make(context, &connectors, batch).await?;
    let took = context.clock.now().since(started);
    for ((member, facts), (outcome, _)) in members.iter().zip(&facts).zip(&answered) {
        context.metrics.destination_wait(facts.destination(), started.since(member.due_since));
        let first = sent.filter(|_| facts.context() != sent);
        telemetry::called(context, member, facts, CallEnd { outcome, took, first });
        let failed = outcome.failure().is_some() && !matches!(outcome, Outcome::Wait { .. });
        if let Some(worker) = member.worker.as_ref().filter(|worker| !worker.safe_mode.when.is_empty()) {
            Box::pin(context.safe_modes.attempted(worker, failed, context.clock.ledger_time())).await;
        }
    }
    Ok(answered)
}

/// One request, given up after the shortest time-out of its calls.
async fn make(
    context: &WorkContext,
    connectors: &Connectors,
    batch: CallBatch,
) -> Result<Vec<(Outcome, bool)>, sluice_ledger::Error> {
    let CallBatch { calls, recording } = batch;
    let effect_keys: Vec<String> = calls.iter().map(|call| call.effect_key.to_string()).collect();
    let requests: Vec<Call<'_>> = calls.iter().zip(&effect_keys).map(|(call, key)| request(call, key)).collect();
    let timeout = calls.iter().map(|call| call.timeout).min().unwrap_or_default();
    let mut recorded = Vec::with_capacity(recording.len());
    let mut if_slow = Vec::new();
    for recording in recording {
        recorded.push(!matches!(recording, Recording::IfSlow(_)));
        match recording {
            Recording::Done => {}
            Recording::Before(begin) => context.ledger.begin_without_waiting(*begin).await?,
            Recording::IfSlow(begin) => if_slow.push(begin),
        }
    }
    let mut calling = std::pin::pin!(tokio::time::timeout(timeout, connectors.call_batch(&requests)));
    let answer = match if_slow.is_empty() {
        true => calling.await,
        false => match tokio::time::timeout(RECORD_AFTER, calling.as_mut()).await {
            Ok(answer) => answer,
            Err(_) => {
                recorded.fill(true);
                for begin in if_slow {
                    context.ledger.begin_without_waiting(*begin).await?;
                }
                calling.await
            }
        },
    };
    let unsure = |_| Outcome::Unsure { failure: timed_out(timeout) }.of_whole_batch(calls.len());
    Ok(answer.unwrap_or_else(unsure).into_iter().zip(recorded).collect())
}

/// Asks the destination how an earlier call ended.
pub(super) async fn read_back(context: &WorkContext, members: &[Member], call: StepCall) -> Input {
    let connectors = match members.first() {
        Some(member) => connectors(context, member, &call.destination),
        None => context.revisions.connectors(&Arc::default(), &call.destination),
    };
    let effect_key = call.effect_key.to_string();
    let readback = tokio::time::timeout(call.timeout, connectors.read_back(request(&call, &effect_key))).await;
    Input::ReadBack(readback.unwrap_or_else(|_| Readback::Unreadable(timed_out(call.timeout))))
}

/// The connectors of a destination, which count the calls of the slot if its budget is limited.
fn connectors(context: &WorkContext, member: &Member, destination: &str) -> Connectors {
    let connectors = context.revisions.connectors(&member.revision, destination);
    member.meter.as_ref().map_or(connectors.clone(), |meter| connectors.metered(meter.clone()))
}

fn request<'a>(call: &'a StepCall, effect_key: &'a str) -> Call<'a> {
    Call {
        action: call.action,
        destination: &call.destination,
        with: &call.with,
        effect_key,
        message_key: call.message_key.as_deref(),
        record: call.record.as_ref(),
        attempt: call.attempt,
        traceparent: Some(&call.traceparent),
        timeout: call.timeout,
        now: call.at,
    }
}
