//! Trials of a new configuration on stored requests. They change nothing, so they leave no audit entry.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_domain::access::Permission;
use sluice_domain::unit;
use utoipa::ToSchema;

use super::change::Wanted;
use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::TrialView;
use crate::trials::{Trial, TrialInput};

#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrialRequest {
    #[serde(flatten)]
    pub wanted: Wanted,
    /// How far back requests are taken, such as `7d`.
    pub window: String,
}

impl Operator {
    /// Starts a trial of a configuration.
    pub async fn start_trial(&self, request: &TrialRequest) -> Result<TrialView, OperateError> {
        self.permit(Permission::Operate)?;
        let window = unit::duration(&request.window)
            .map_err(|problem| OperateError::Invalid(format!("window: {problem}; such as 7d")))?;
        let candidate = self.candidate(&request.wanted).await?;
        let running = self.running().await?;
        let plan = self.plan_of(&running, &candidate).await?;
        let active = self.revisions.get(&Arc::from(plan.running.as_str()), &self.ledger).await.ok_or_else(|| {
            let problem =
                format!("the active revision {} does not compile, so nothing can be compared with it", plan.running);
            OperateError::Refused("revision-lost", problem)
        })?;
        let input = TrialInput {
            active,
            candidate: Arc::new(candidate.live),
            only_flows_differ: plan.changes.iter().all(|change| change.kind == "flow"),
            since: self.clock.ledger_time() - window,
        };
        let trial = self.trials.start(input).ok_or_else(|| {
            let problem = "another trial is running; wait until it has ended, or cancel it".to_owned();
            OperateError::Refused("trial-running", problem)
        })?;
        Ok(TrialView::new(&trial))
    }

    /// The progress of the last trial, and its report once it has ended.
    pub fn trial(&self, id: u64) -> Result<TrialView, OperateError> {
        Ok(TrialView::new(&*self.find_trial(id)?))
    }

    pub fn cancel_trial(&self, id: u64) -> Result<TrialView, OperateError> {
        self.permit(Permission::Operate)?;
        let trial = self.find_trial(id)?;
        trial.cancel();
        Ok(TrialView::new(&trial))
    }

    fn find_trial(&self, id: u64) -> Result<Arc<Trial>, OperateError> {
        let unknown =
            || OperateError::NotFound(format!("unknown trial {id}; only the last one is kept, until a restart"));
        self.trials.get(id).ok_or_else(unknown)
    }
}
