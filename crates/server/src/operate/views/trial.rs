//! A trial of a configuration on stored requests.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::change::TrialReport;
use crate::trials::{Trial, TrialState};

#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TrialView {
    pub id: u64,
    /// running, done, cancelled or failed.
    pub state: String,
    /// Active revision.
    pub running: String,
    /// Revision of the new files.
    pub new: String,
    /// Requests received at or after this time.
    pub since: String,
    /// Events that were looked at.
    pub events_done: u64,
    /// Events of the window; 0 until it is known.
    pub events_total: u64,
    /// The window has more events than a trial takes: only the newest ones are compared.
    pub is_cut: bool,
    pub seconds: f64,
    pub events_per_second: u64,
    /// Why it has failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
    /// Once it is done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub report: Option<TrialReport>,
}

impl TrialView {
    pub(in crate::operate) fn new(trial: &Trial) -> TrialView {
        let progress = trial.progress();
        let seconds = progress.took.as_secs_f64();
        let (state, problem, report) = match progress.state {
            TrialState::Running => ("running", None, None),
            TrialState::Done { report, .. } => ("done", None, Some(*report)),
            TrialState::Cancelled => ("cancelled", None, None),
            TrialState::Failed(problem) => ("failed", Some(problem), None),
        };
        TrialView {
            id: trial.id,
            state: state.to_owned(),
            running: trial.active.to_string(),
            new: trial.candidate.to_string(),
            since: trial.since.to_string(),
            events_done: progress.done,
            events_total: progress.total,
            is_cut: progress.is_cut,
            seconds,
            events_per_second: (progress.done as f64 / seconds.max(0.001)) as u64,
            problem,
            report,
        }
    }
}
