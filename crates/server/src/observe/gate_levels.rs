//! Levels of gates and budgets, by destination.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use sluice_domain::schedule::gate::GateView;
use sluice_domain::time::Time;

use super::metrics::DestinationLabels;

type ByDestination = Family<DestinationLabels, Gauge>;

/// Gauges of gates. Those of a destination that has no such value are absent.
#[derive(Clone, Debug, Default)]
pub struct GateLevels {
    in_flight: ByDestination,
    concurrency: ByDestination,
    concurrency_max: ByDestination,
    retry_after_seconds: ByDestination,
    learned_rate: ByDestination,
    budget_limit: ByDestination,
    budget_used: ByDestination,
    budget_left: ByDestination,
    budget_left_for_replays: ByDestination,
    budget_runs_out_seconds: ByDestination,
}

impl GateLevels {
    pub(super) fn named(&self) -> [(&'static str, &ByDestination); 10] {
        [
            ("sluice_destination_in_flight", &self.in_flight),
            ("sluice_destination_concurrency", &self.concurrency),
            ("sluice_destination_concurrency_max", &self.concurrency_max),
            ("sluice_destination_retry_after_seconds", &self.retry_after_seconds),
            ("sluice_destination_learned_rate", &self.learned_rate),
            ("sluice_destination_budget_limit", &self.budget_limit),
            ("sluice_destination_budget_used", &self.budget_used),
            ("sluice_destination_budget_left", &self.budget_left),
            ("sluice_destination_budget_left_for_replays", &self.budget_left_for_replays),
            ("sluice_destination_budget_runs_out_seconds", &self.budget_runs_out_seconds),
        ]
    }

    /// Sets the levels of all gates. `now` is by the steady clock, `at` the ledger's time.
    pub fn set<'a>(&self, gates: impl Iterator<Item = (&'a String, &'a GateView)>, (now, at): (Time, Time)) {
        for (_, gauge) in self.named() {
            gauge.clear();
        }
        for (destination, gate) in gates {
            let labels = DestinationLabels { destination: destination.clone() };
            let set = |gauge: &ByDestination, value: u64| {
                gauge.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
            };
            set(&self.in_flight, u64::from(gate.in_flight));
            set(&self.concurrency, u64::from(gate.concurrency));
            set(&self.concurrency_max, u64::from(gate.concurrency_max));
            if let Some(until) = gate.not_before {
                set(&self.retry_after_seconds, until.since(now).as_secs());
            }
            if let Some(rate) = gate.learned_rate {
                set(&self.learned_rate, rate.round() as u64);
            }
            let Some(budget) = &gate.budget else { continue };
            set(&self.budget_used, budget.used);
            let optional = [
                (&self.budget_limit, budget.limit),
                (&self.budget_left, budget.left),
                (&self.budget_left_for_replays, budget.left_for_replays),
                (&self.budget_runs_out_seconds, budget.runs_out_at.map(|runs_out| runs_out.since(at).as_secs())),
            ];
            for (gauge, value) in optional {
                value.into_iter().for_each(|value| set(gauge, value));
            }
        }
    }
}
