//! Flows and queues of the active configuration.

use std::collections::BTreeMap;

use sluice_domain::time::Time;
use sluice_domain::unit::format_duration;
use sluice_domain::verify::Scheme;

use crate::operate::operator::{OperateError, Operator};
use crate::operate::views::{FlowDetail, QueueView, rate_text};

impl Operator {
    /// Flows, by name.
    pub fn flows(&self) -> Vec<FlowDetail> {
        let live = self.revisions.current();
        let paused = self.intake.paused();
        let view = |flow: &sluice_domain::flow::Flow| {
            let queues: Vec<String> = flow.enqueue.iter().map(|enqueue| enqueue.queue.to_string()).collect();
            let workers = queues.iter().flat_map(|queue| live.config.consumers(queue));
            FlowDetail {
                name: flow.name.clone(),
                source: flow.source.clone(),
                route: format!("{} {}", flow.method, flow.path),
                verify: flow.verify.as_ref().map_or("none", |verifier| verifier.scheme().name()).to_owned(),
                open: flow.verify.as_ref().is_some_and(|verifier| verifier.scheme() == Scheme::None),
                paused: paused.contains(&flow.source),
                workers: workers.map(|worker| worker.name.clone()).collect(),
                queues,
                key_lifetime: format_duration(flow.idempotency.ttl),
                rate_limit: flow.rate_limit.as_ref().map(|limit| rate_text(limit.rate)),
                body_bytes_max: flow.body_bytes_max,
            }
        };
        live.config.flows.values().map(|flow| view(flow)).collect()
    }

    /// Queues, by name. Counts are kept by the ledger, not counted.
    pub async fn queues(&self) -> Result<Vec<QueueView>, OperateError> {
        let live = self.revisions.current();
        let pauses = self.ledger.pauses().await?;
        let (mut waiting, mut dead): (BTreeMap<String, u64>, BTreeMap<String, u64>) = Default::default();
        for record in self.ledger.pinned().await? {
            *waiting.entry(record.queue).or_default() += record.live;
            if let Some(queue) = record.dead_letter_queue {
                *dead.entry(queue).or_default() += record.parked;
            }
        }
        let oldest: BTreeMap<String, Time> =
            self.ledger.oldest_jobs().await?.live.into_iter().map(|(worker, at)| (worker.to_string(), at)).collect();
        let view = |queue: &sluice_domain::worker::Queue| {
            let workers: Vec<String> = live.config.consumers(&queue.name).map(|worker| worker.name.clone()).collect();
            let oldest_at = workers.iter().filter_map(|worker| oldest.get(worker)).min();
            QueueView {
                name: queue.name.clone(),
                live: waiting.get(&queue.name).copied().unwrap_or_default(),
                dead_letters: dead.get(&queue.name).copied().unwrap_or_default(),
                paused: pauses.iter().any(|pause| pause.target == format!("queue:{}", queue.name)),
                retention: format_duration(queue.retention),
                visibility_timeout: format_duration(queue.visibility_timeout),
                dead_letter_queue: queue.dead_letter_queue.as_deref().map(str::to_owned),
                oldest_at: oldest_at.map(Time::to_string),
                workers,
            }
        };
        Ok(live.config.queues.values().map(view).collect())
    }
}
