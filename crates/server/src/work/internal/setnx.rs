//! `store.setnx`: a mark that one job sets and every other finds set.
//!
//! The set is an intent with an owner. It commits together with what the step came to, before anything is sent; and to
//! its owner it is never "already set". So a crash between the set and the send neither loses what was to be sent nor sends it twice.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::event::scalar;
use sluice_domain::job::EffectState;
use sluice_domain::key::{KeyDigest, TENANT};
use sluice_domain::unit;
use sluice_domain::worker::Step;
use sluice_ledger::Mark;

use super::{DryRunOutput, InternalOutcome, InternalStep, bad_parameter, dedup_key};
use crate::work::run::JobRun;

pub(super) async fn perform(
    run: &JobRun<'_>,
    inside: &InternalStep<'_>,
) -> Result<InternalOutcome, sluice_ledger::Error> {
    let Some(key) = scalar(&inside.with["key"]) else {
        return Ok(bad_parameter(inside.step, "`key` has no value"));
    };
    let Some(ttl) = ttl(inside.with) else {
        return Ok(bad_parameter(inside.step, "`ttl_seconds` must be a number above zero, or `ttl` a duration"));
    };
    let store = inside.with["store"].as_str().unwrap_or("default").to_owned();
    let scope = format!("mark:{store}");
    let note = run.note(inside.step, inside.turn, EffectState::Applied, Value::Null);
    let mark = Mark {
        key: KeyDigest::new(TENANT, &scope, &key),
        adjacent: dedup_key::adjacent(inside.scope, &key)
            .iter()
            .map(|adjacent| KeyDigest::new(TENANT, &scope, adjacent))
            .collect(),
        store,
        event: run.event.id,
        expires_at: note.at + ttl,
        note,
    };
    Ok(match run.context.ledger.mark(mark).await? {
        Some(marked) => {
            run.context.metrics.mark(&inside.worker.name, marked.set);
            InternalOutcome::Done(marked.output())
        }
        None => InternalOutcome::Stale,
    })
}

/// What it would come to if nobody has set the mark.
pub(super) fn rehearse(step: &Step, with: &Value) -> Result<DryRunOutput, String> {
    if scalar(&with["key"]).is_none() {
        return Err(format!("step `{}`: `key` has no value", step.id));
    }
    match ttl(with) {
        Some(_) => Ok(DryRunOutput { output: json!({ "set": true }), assumed: Some("nobody has set this mark yet") }),
        None => Err(format!("step `{}`: `ttl_seconds` must be a number above zero, or `ttl` a duration", step.id)),
    }
}

fn ttl(with: &Value) -> Option<Duration> {
    let ttl = match (&with["ttl"], &with["ttl_seconds"]) {
        (Value::Null, seconds) => {
            let seconds = seconds.as_f64().or_else(|| seconds.as_str()?.trim().parse().ok())?;
            Duration::try_from_secs_f64(seconds).ok()?
        }
        (ttl, _) => unit::duration(ttl.as_str()?).ok()?,
    };
    (!ttl.is_zero()).then_some(ttl)
}
