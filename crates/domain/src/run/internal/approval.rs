//! `approval.request`: a person decides whether the job goes on.
//!
//! The request is a row of its own, named after the step that asks. Asking and waiting are one commit, so that no decision can
//! fall between them; the first decision counts, and the job finds it whenever it runs again.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::item::StepItem;
use super::super::{Command, JobRun, RunContext};
use super::{DryRunOutput, InternalOutcome, InternalStep, bad_parameter};
use crate::approval::{ApprovalState, Choice, EXPIRY};
use crate::event::scalar;
use crate::job::{EffectKey, EffectState};
use crate::ops::{ApprovalRecord, DecideApproval, RequestApproval, Settlement};
use crate::outcome::{Failure, FailureClass};
use crate::unit;
use crate::wait::APPROVAL_CODE;
use crate::worker::{Step, Worker};

/// How long a job waits, unless the step says otherwise.
const EXPIRES: Duration = Duration::from_secs(86_400);
/// Longest text that an approval shows.
const TEXT_CHARS_MAX: usize = 2_500;

impl JobRun {
    pub(super) fn request_approval(&self, item: &StepItem, with: &Value, context: RunContext) -> InternalOutcome {
        let request = match self.approval(item.step(), item.key, with, context) {
            Ok(request) => request,
            Err(problem) => return bad_parameter(item.step(), problem),
        };
        let due = context.now + request.expires_at.since(context.at);
        let failure = waiting(&request.id.to_string());
        let mut next = self.position(self.job.attempts, context.at).wait(due, Some(failure));
        let route = self.route_here();
        (next.destination, next.order) = (route.destination, route.order);
        let (job, n, fence, at) = (self.job.id, self.job.attempts_total, self.fence(context), context.at);
        let waits = Some(Settlement { job, n, fence, effect: None, attempt: None, write: None, next, at });
        let request = RequestApproval { waits, ..request };
        InternalOutcome::ask(Command::RequestApproval(Box::new(request)), InternalStep::Approval)
    }

    pub(super) fn approval_read(
        &self,
        item: &StepItem,
        approval: &ApprovalRecord,
        context: RunContext,
    ) -> InternalOutcome {
        match approval.state {
            ApprovalState::Pending if approval.expires_at <= context.at => {
                let decide = DecideApproval {
                    ids: vec![approval.id],
                    choice: approval.default,
                    actor: EXPIRY.to_owned(),
                    reason: "nobody answered in time".to_owned(),
                    at: context.at,
                };
                InternalOutcome::ask(Command::ExpireApproval(Box::new(decide)), InternalStep::Approval)
            }
            ApprovalState::Pending => InternalOutcome::Deferred {
                due: context.now + approval.expires_at.since(context.at),
                failure: waiting(&approval.id.to_string()),
            },
            state => {
                let approved = state == ApprovalState::Approved;
                let effect = if approved { EffectState::Applied } else { EffectState::Skipped };
                let result = self.step_result(item, effect, decision(approval), context);
                let next = if approved { InternalStep::Record } else { InternalStep::RecordEnd };
                InternalOutcome::ask(Command::RecordStep(Box::new(result)), next)
            }
        }
    }

    /// The approval request of a step, before it is asked.
    fn approval(
        &self,
        step: &Step,
        key: EffectKey,
        with: &Value,
        context: RunContext,
    ) -> Result<RequestApproval, &'static str> {
        let text = |name: &str| scalar(&with[name]).map(|text| cut(&text));
        let title = text("title").filter(|title| !title.trim().is_empty()).ok_or("`title` has no value")?;
        let expires = match &with["expires"] {
            Value::Null => EXPIRES,
            given => given.as_str().and_then(|text| unit::duration(text).ok()).ok_or("`expires` must be a duration")?,
        };
        Ok(RequestApproval {
            id: key.into(),
            job: self.job.id,
            worker: self.job.worker.clone(),
            step_id: step.id.clone(),
            title,
            summary: text("summary").unwrap_or_default(),
            expires_at: context.at + expires,
            default: with["default"].as_str().and_then(Choice::parse).unwrap_or(Choice::Reject),
            at: context.at,
            waits: None,
        })
    }

    /// The request that this step announces, visible to its expressions as `approval`. `None` if there is none to announce.
    pub(in crate::run) fn announcement(
        &mut self,
        worker: &Worker,
        step: &Step,
        context: RunContext,
    ) -> Option<RequestApproval> {
        let asks = worker.steps.iter().find(|asks| Some(&asks.id) == step.announces.as_ref())?;
        let pinned = self.config.pinned.as_ref()?;
        let with = asks.with.render(&self.scope, &*pinned.secrets).ok().flatten()?;
        let request = self.approval(asks, self.effects.key(&asks.label(0, None)), &with, context).ok()?;
        self.scope.set("approval", shown(&request));
        Some(request)
    }

    /// The announced request is durable. It is announced only while nobody has decided.
    pub(in crate::run) fn announced(
        &mut self,
        item: StepItem,
        approval: Option<&ApprovalRecord>,
        context: RunContext,
    ) -> Command {
        if approval.is_some_and(|approval| approval.state == ApprovalState::Pending) {
            if let Some(command) = self.perform(item, context) {
                return command;
            }
        } else {
            let worker = item.worker.clone();
            if let Some(step) = worker.step_at(item.place) {
                self.pass(step, None);
            }
        }
        self.advance(context)
    }
}

fn waiting(approval: &str) -> Failure {
    Failure::new(FailureClass::Retryable, APPROVAL_CODE, format!("waits for a decision on {approval}"))
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// The output of the step.
fn decision(approval: &ApprovalRecord) -> Value {
    let (by, reason) =
        (approval.decided_by.as_deref().unwrap_or_default(), approval.reason.as_deref().unwrap_or_default());
    let id = approval.id.to_string();
    match approval.state {
        ApprovalState::Approved => json!({ "approved": true, "by": by, "reason": reason, "approval": id }),
        _ => json!({ "noop": "rejected", "approved": false, "by": by, "reason": reason, "approval": id }),
    }
}

/// As a message shows it, with Slack's markup characters escaped.
fn shown(request: &RequestApproval) -> Value {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = match request.summary.as_str() {
        "" => format!("*{}*", escape(&request.title)),
        summary => format!("*{}*\n{}", escape(&request.title), escape(summary)),
    };
    json!({ "id": request.id.to_string(), "title": request.title, "summary": request.summary, "text": text })
}

pub(super) fn dry_run(step: &Step, with: &Value) -> Result<DryRunOutput, String> {
    if scalar(&with["title"]).is_none_or(|title| title.trim().is_empty()) {
        return Err(format!("step `{}`: `title` has no value", step.id));
    }
    Ok(DryRunOutput { output: json!({ "approved": true }), assumed: Some("somebody approves it") })
}
