//! The configuration that runs beside the active one.

use serde::{Deserialize, Serialize};
use sluice_ledger::ShadowRecord;
use utoipa::ToSchema;

use crate::change::TrialReport;
use crate::trials::ShadowReport;

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ShadowView {
    pub revision: String,
    /// Active revision, which it is compared with.
    pub active: String,
    pub started_at: String,
    pub actor: String,
    pub reason: String,
    /// `waiting` (no request yet), `same`, `different`, `failed` or `promoted`: it is the active one by now.
    pub verdict: String,
    /// Requests that were not compared: too many arrived, or the comparison failed.
    pub left_out: u64,
    /// Why the last requests were not compared.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
    /// Differences. Contacts are not counted.
    pub report: TrialReport,
}

impl ShadowView {
    pub(in crate::operate) fn new(record: &ShadowRecord, active: &str) -> ShadowView {
        let ShadowReport { report, left_out, problem } = match record.active == active {
            true => ShadowReport::of(record),
            false => ShadowReport::default(),
        };
        let verdict = match (&problem, report.events) {
            _ if record.hash == active => "promoted",
            (Some(_), _) => "failed",
            (None, 0) => "waiting",
            (None, _) if report.is_same() => "same",
            (None, _) => "different",
        };
        ShadowView {
            revision: record.hash.clone(),
            active: active.to_owned(),
            started_at: record.started_at.to_string(),
            actor: record.actor.clone(),
            reason: record.reason.clone(),
            verdict: verdict.to_owned(),
            left_out,
            problem,
            report,
        }
    }
}
