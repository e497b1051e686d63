//! `store.setnx`: a mark that one job sets and every other finds set.
//!
//! The mark has an owner and commits together with the result of the step, before anything is sent; to its owner it is never
//! "already set". A crash between the mark and the send neither loses what was to be sent nor sends it twice.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::item::StepItem;
use super::super::{Command, JobRun, RunContext};
use super::dedup_key::adjacent;
use super::{DryRunOutput, InternalOutcome, InternalStep, bad_parameter};
use crate::event::scalar;
use crate::job::EffectState;
use crate::key::{KeyDigest, TENANT};
use crate::ops::Mark;
use crate::unit;
use crate::worker::Step;

const BAD_TTL: &str = "`ttl_seconds` must be a number above zero, or `ttl` a duration";

impl JobRun {
    pub(super) fn set_mark(&self, item: &StepItem, with: &Value, context: RunContext) -> InternalOutcome {
        let Some(key) = scalar(&with["key"]) else { return bad_parameter(item.step(), "`key` has no value") };
        let Some(ttl) = ttl(with) else { return bad_parameter(item.step(), BAD_TTL) };
        let store = with["store"].as_str().unwrap_or("default").to_owned();
        let scope = format!("mark:{store}");
        let digest = |key: &str| KeyDigest::new(TENANT, &scope, key);
        let result = self.step_result(item, EffectState::Applied, Value::Null, context);
        let mark = Mark {
            key: digest(&key),
            adjacent: adjacent(&self.scope, &key).iter().map(|key| digest(key)).collect(),
            store,
            event: self.event.id,
            expires_at: context.at + ttl,
            result,
        };
        InternalOutcome::ask(Command::SetMark(Box::new(mark)), InternalStep::Mark)
    }
}

/// As if nobody had set the mark.
pub(super) fn dry_run(step: &Step, with: &Value) -> Result<DryRunOutput, String> {
    if scalar(&with["key"]).is_none() {
        return Err(format!("step `{}`: `key` has no value", step.id));
    }
    match ttl(with) {
        Some(_) => Ok(DryRunOutput { output: json!({ "set": true }), assumed: Some("nobody has set this mark yet") }),
        None => Err(format!("step `{}`: {BAD_TTL}", step.id)),
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
