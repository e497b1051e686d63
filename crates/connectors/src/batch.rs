//! Requests that carry several calls: from the answer to one outcome for each call.

use sluice_domain::outcome::{Failure, FailureClass, Outcome};

use crate::{Call, echo};

/// Answer to a request that carried several calls.
#[derive(Debug)]
pub(crate) enum BatchOutcome {
    /// The request was answered as a whole, or not at all.
    Whole(Outcome),
    /// One for each call, in their order.
    Each(Vec<Outcome>),
}

impl BatchOutcome {
    /// One outcome for each call. Values of the calls that the destination quotes in its errors are masked.
    pub(crate) fn into_outcomes(self, calls: &[Call<'_>]) -> Vec<Outcome> {
        match self {
            BatchOutcome::Each(outcomes) if outcomes.len() == calls.len() => {
                outcomes.into_iter().zip(calls).map(|(outcome, call)| echo::mask_outcome(outcome, call)).collect()
            }
            BatchOutcome::Each(outcomes) => {
                let message = format!("The response has {} results for {} calls.", outcomes.len(), calls.len());
                let failure = Failure::new(FailureClass::Retryable, "batch-results", message);
                Outcome::Unsure { failure }.of_whole_batch(calls.len())
            }
            BatchOutcome::Whole(outcome) => echo::mask_shared(outcome, calls).of_whole_batch(calls.len()),
        }
    }
}

/// Calls whose parameters were read, and those that are rejected because they could not be.
pub(crate) struct Checked<'a, Settings> {
    pub(crate) calls: Vec<Call<'a>>,
    pub(crate) settings: Vec<Settings>,
    /// By place among all calls; `None` for a call that is sent.
    rejected: Vec<Option<Failure>>,
}

impl<'a, Settings> Checked<'a, Settings> {
    pub(crate) fn new(calls: &[Call<'a>], read: impl Fn(&Call<'a>) -> Result<Settings, Failure>) -> Self {
        let mut checked = Checked { calls: vec![], settings: vec![], rejected: Vec::with_capacity(calls.len()) };
        for call in calls {
            checked.rejected.push(match read(call) {
                Ok(settings) => {
                    checked.calls.push(*call);
                    checked.settings.push(settings);
                    None
                }
                Err(failure) => Some(failure),
            });
        }
        checked
    }

    /// The outcomes of all calls in their order, from those of the calls that were sent.
    pub(crate) fn outcomes(self, sent: Vec<Outcome>) -> Vec<Outcome> {
        let mut sent = sent.into_iter();
        let outcome = |rejected| match rejected {
            Some(failure) => Some(Outcome::Reject { failure }),
            None => sent.next(),
        };
        self.rejected.into_iter().filter_map(outcome).collect()
    }
}
