//! Dry run: the steps of a job with the expressions, templates and requests of a real run. Nothing is written or sent.
//!
//! In: a compiled configuration, an event with its request, a job.
//! Out: for each step whether it runs, its output or its request.
//! Touches: nothing.
//! Never: the ledger, the network.
//! If the process dies here: nothing has happened.

mod steps;

use serde::Serialize;
use serde_json::Value;
use sluice_domain::mask;

pub(crate) use steps::{DryRunInput, TRACE, job};

#[derive(Debug, Serialize)]
pub(crate) struct JobReport {
    pub worker: String,
    pub queue: String,
    pub steps: Vec<StepReport>,
    pub problem: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Runs {
    Yes,
    No,
    /// Depends on the output of an earlier step.
    Depends,
}

#[derive(Debug, Serialize)]
pub(crate) struct StepReport {
    pub step: String,
    pub action: &'static str,
    pub destination: String,
    pub class: &'static str,
    /// It only reads.
    pub is_lookup: bool,
    pub effect_key: String,
    pub condition: Option<String>,
    pub runs: Runs,
    /// Steps whose outputs it depends on.
    pub needs: Vec<String>,
    /// Number of items; the report shows the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<usize>,
    /// Undo action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
    /// Output of an internal step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Assumption of the dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed: Option<&'static str>,
    /// Results of policy rules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<RuleReport>,
    pub request: Option<RequestReport>,
    /// Failure that would make the job a dead letter.
    pub problem: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct RuleReport {
    pub policy: String,
    pub rule: String,
    /// passes, refuses or waits.
    pub verdict: &'static str,
    pub detail: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct RequestReport {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

/// Masking of personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    On,
    Off,
}

impl Cover {
    pub(crate) fn value(self, value: &Value) -> Value {
        if self == Cover::On { mask::value(value) } else { value.clone() }
    }

    pub(crate) fn text(self, text: &str) -> String {
        if self == Cover::On { mask::text(text).into_owned() } else { text.to_owned() }
    }
}
