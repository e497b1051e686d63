//! Pause and resume.

use sluice_domain::access::Permission;
use sluice_ledger::{Pause, Resume};

use crate::operate::commands::need;
use crate::operate::operator::{OperateError, Operator};

impl Operator {
    /// Pauses a source, a queue, a worker, a destination or all replays.
    pub async fn pause(&self, target: &str, actor: &str, reason: &str) -> Result<(), OperateError> {
        self.permit(Permission::Operate)?;
        need(reason, "a pause needs a reason")?;
        let target = self.target(target)?;
        let (actor, reason, at) = (self.actor(actor), reason.to_owned(), self.clock.ledger_time());
        self.ledger.pause(Pause { target, actor, reason, at }).await?;
        self.catch_up().await
    }

    /// Ends a pause. The reason may be empty.
    pub async fn resume(&self, target: &str, actor: &str, reason: &str) -> Result<(), OperateError> {
        self.permit(Permission::Operate)?;
        let target = self.target(target)?;
        let (actor, reason, at) = (self.actor(actor), reason.trim().to_owned(), self.clock.ledger_time());
        self.ledger.resume(Resume { target, actor, reason, at }).await?;
        self.catch_up().await
    }

    /// Stored form of a target: a playbook is a worker.
    fn target(&self, target: &str) -> Result<String, OperateError> {
        if target == crate::pauses::REPLAYS {
            return Ok(target.to_owned());
        }
        let live = self.revisions.current();
        let (kind, name) = target.split_once(':').unwrap_or((target, ""));
        let names: Vec<&str> = match kind {
            "destination" => live.config.destinations.keys().map(String::as_str).collect(),
            "worker" | "playbook" => live.config.workers.keys().map(String::as_str).collect(),
            "queue" => live.config.queues.keys().map(String::as_str).collect(),
            "source" => live.config.flows.values().map(|flow| flow.source.as_str()).collect(),
            _ => {
                return Err(OperateError::Invalid(format!(
                    "`{target}` cannot be paused; use destination:NAME, worker:NAME, playbook:NAME, queue:NAME, source:NAME or replays"
                )));
            }
        };
        if names.contains(&name) {
            return Ok(format!("{}:{name}", if kind == "playbook" { "worker" } else { kind }));
        }
        let hint = crate::config::did_you_mean(name, names.iter().copied())
            .map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        Err(OperateError::NotFound(format!("unknown {kind} `{name}`{hint}")))
    }
}
