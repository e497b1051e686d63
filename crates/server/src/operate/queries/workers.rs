//! Workers with their queues and jobs.

use std::collections::BTreeMap;

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::WorkerView;

impl Operator {
    /// Workers of the active configuration, with their jobs by state. Counts are kept by the ledger, not counted.
    pub async fn workers(&self) -> Result<Vec<WorkerView>, OperateError> {
        let live = self.revisions.current();
        let paused = crate::pauses::workers(&live.config, &self.ledger.pauses().await?);
        let mut jobs: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for total in self.ledger.job_totals().await? {
            let states = jobs.entry(total.worker.to_string()).or_default();
            *states.entry(total.state.to_string()).or_default() += total.count;
        }
        let oldest: BTreeMap<String, String> = self
            .ledger
            .oldest_jobs()
            .await?
            .live
            .into_iter()
            .map(|(name, at)| (name.to_string(), at.to_string()))
            .collect();
        let view = |worker: &sluice_domain::worker::Worker| WorkerView {
            name: worker.name.clone(),
            queue: worker.queue.clone(),
            on: worker.on.clone(),
            concurrency: worker.concurrency,
            steps: worker.steps.iter().map(|step| step.id.to_string()).collect(),
            paused: paused.contains(&worker.name),
            jobs: jobs.get(&worker.name).cloned().unwrap_or_default(),
            oldest_at: oldest.get(&worker.name).cloned(),
        };
        Ok(live.config.workers.values().map(|worker| view(worker)).collect())
    }
}
