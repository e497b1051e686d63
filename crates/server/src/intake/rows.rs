//! Rows of imports: what a sender sent before, taken as a request of its flow would be.

use serde_json::Value;
use sluice_domain::flow::Flow;
use sluice_domain::time::Time;
use sluice_ledger::{Acceptance, NewEvent};

use super::IntakeContext;
use super::answer::HttpProblem;
use super::prepare::{RequestMeta, RowOrigin, prepare_row};
use super::problems::too_large;
use crate::observe::metrics::{OutcomeLabels, SourceLabels};
use crate::revisions::LoadedRevision;

impl IntakeContext {
    /// Prepares a row. `verified_by` names the import: the operator who started it answers for its rows.
    pub(crate) fn prepare_row(
        &self,
        (live, flow): (&LoadedRevision, &Flow),
        payload: Value,
        row: &RowOrigin,
        verified_by: &str,
        received_at: Time,
    ) -> Result<NewEvent, HttpProblem> {
        if payload.to_string().len() as u64 > flow.body_bytes_max {
            return Err(too_large(flow.body_bytes_max));
        }
        let trace = self.ids.trace().to_string();
        let arrival = RequestMeta {
            received_at,
            verified_by: Some(verified_by),
            verified: None,
            trace: &trace,
            pseudonyms: Some(self.revisions.pseudonyms()),
            address: None,
        };
        Ok(prepare_row(live, flow, payload, row, arrival)?.into_new().1)
    }

    /// Counts the rows of a batch.
    pub(crate) fn count_rows(&self, flow: &Flow, accepted: &[Acceptance], refused: u64) {
        let rows = |outcome, count| {
            if count > 0 {
                self.metrics.import_rows.get_or_create(&OutcomeLabels { outcome }).inc_by(count);
            }
        };
        let labels = SourceLabels { source: flow.source.clone() };
        for acceptance in accepted {
            match acceptance {
                Acceptance::Accepted(accepted) if accepted.quarantined => {
                    self.metrics.quarantined.get_or_create(&labels).inc();
                    rows("quarantined", 1);
                }
                Acceptance::Accepted(accepted) => {
                    self.metrics.released("event", u64::from(accepted.released));
                    rows("accepted", 1);
                }
                Acceptance::Duplicate(_) | Acceptance::ProofUsed => rows("duplicate", 1),
            }
        }
        rows("refused", refused);
    }
}
