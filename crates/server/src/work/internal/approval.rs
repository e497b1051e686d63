//! `approval.request`: a person decides whether the job goes on.
//!
//! The question is a row of its own, named after the step that asks. Asking and waiting are one commit, so that no answer can
//! fall between them; the first answer counts, and the job finds it whenever it runs again.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_domain::approval::{ApprovalState, Choice, EXPIRY};
use sluice_domain::event::scalar;
use sluice_domain::job::{EffectKey, EffectState};
use sluice_domain::outcome::{Failure, FailureClass};
use sluice_domain::unit;
use sluice_domain::worker::Step;
use sluice_ledger::{ApprovalRecord, DecideApproval, RequestApproval, Settlement};

use super::{DryRunOutput, InternalOutcome, InternalStep, bad_parameter};
use crate::work::run::JobRun;

/// For how long a job waits, unless the step says otherwise.
const EXPIRES: Duration = Duration::from_secs(86_400);
/// What a person has to read at the most.
const TEXT_CHARS_MAX: usize = 2_500;

pub(super) async fn perform(
    run: &JobRun<'_>,
    inside: &InternalStep<'_>,
) -> Result<InternalOutcome, sluice_ledger::Error> {
    let question = match ask(run, inside.step, inside.turn.key, inside.with) {
        Ok(question) => question,
        Err(problem) => return Ok(bad_parameter(inside.step, &problem)),
    };
    let (clock, expires) = (&run.context.clock, question.expires_at);
    let waiting = Failure::new(FailureClass::Retryable, "approval", format!("waits for an answer to {}", question.id));
    let due = clock.now() + expires.since(clock.wall());
    let at = clock.wall();
    let next = run.standing(run.job.attempts, at).wait(due, Some(waiting.clone()));
    let waits = Settlement { job: run.job.id, n: run.job.attempts_total, effect: None, attempt: None, next, at };
    let Some(mut asked) =
        run.context.ledger.request_approval(RequestApproval { waits: Some(waits), ..question }).await?
    else {
        return Ok(InternalOutcome::Stale);
    };
    if asked.state == ApprovalState::Pending && asked.expires_at <= clock.wall() {
        let decide = DecideApproval {
            ids: vec![asked.id],
            choice: asked.default,
            actor: EXPIRY.to_owned(),
            reason: "nobody answered in time".to_owned(),
            at: clock.wall(),
        };
        run.context.ledger.decide_approval(decide).await?;
        match run.context.ledger.approval(asked.id).await? {
            Some(decided) => asked = decided,
            None => return Ok(InternalOutcome::Stale),
        }
    }
    if asked.state == ApprovalState::Pending {
        // By the steady clock: the ledger keeps the question's own end.
        let due = clock.now() + asked.expires_at.since(clock.wall());
        return Ok(InternalOutcome::Deferred { due, failure: waiting });
    }
    let output = answer(&asked);
    let state = if asked.state == ApprovalState::Approved { EffectState::Applied } else { EffectState::Skipped };
    let note = run.note(inside.step, inside.turn, state, output);
    Ok(match run.context.ledger.note(note).await? {
        None => InternalOutcome::Stale,
        Some(kept) if asked.state == ApprovalState::Approved => InternalOutcome::Done(kept),
        Some(kept) => InternalOutcome::End(kept),
    })
}

/// The question of a step, before it is asked.
pub(in crate::work) fn ask(
    run: &JobRun<'_>,
    step: &Step,
    key: EffectKey,
    with: &Value,
) -> Result<RequestApproval, String> {
    let text = |name: &str| scalar(&with[name]).map(|text| cut(&text));
    let title = text("title").filter(|title| !title.trim().is_empty()).ok_or("`title` has no value")?;
    let expires = match &with["expires"] {
        Value::Null => EXPIRES,
        given => given.as_str().and_then(|text| unit::duration(text).ok()).ok_or("`expires` must be a duration")?,
    };
    let at = run.context.clock.wall();
    Ok(RequestApproval {
        id: key.into(),
        job: run.job.id,
        worker: run.job.worker.clone(),
        step_id: step.id.clone(),
        title,
        summary: text("summary").unwrap_or_default(),
        expires_at: at + expires,
        default: with["default"].as_str().and_then(Choice::parse).unwrap_or(Choice::Reject),
        at,
        waits: None,
    })
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// What the step leaves.
fn answer(asked: &ApprovalRecord) -> Value {
    let (by, reason) = (asked.decided_by.as_deref().unwrap_or_default(), asked.reason.as_deref().unwrap_or_default());
    match asked.state {
        ApprovalState::Approved => {
            json!({ "approved": true, "by": by, "reason": reason, "approval": asked.id.to_string() })
        }
        _ => {
            json!({ "noop": "rejected", "approved": false, "by": by, "reason": reason, "approval": asked.id.to_string() })
        }
    }
}

/// As a message shows it: what means something to Slack is written so that it does not.
pub(in crate::work) fn shown(ask: &RequestApproval) -> Value {
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = match ask.summary.as_str() {
        "" => format!("*{}*", plain(&ask.title)),
        summary => format!("*{}*\n{}", plain(&ask.title), plain(summary)),
    };
    json!({ "id": ask.id.to_string(), "title": ask.title, "summary": ask.summary, "text": text })
}

pub(super) fn rehearse(step: &Step, with: &Value) -> Result<DryRunOutput, String> {
    if scalar(&with["title"]).is_none_or(|title| title.trim().is_empty()) {
        return Err(format!("step `{}`: `title` has no value", step.id));
    }
    Ok(DryRunOutput { output: json!({ "approved": true }), assumed: Some("somebody approves it") })
}
