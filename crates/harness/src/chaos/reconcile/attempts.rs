//! Matches every attempt in the ledger with the calls at the CRM.
//!
//! A call carries the span id of its attempt, derived from job and attempt number, so that each call is matched and not only
//! counted. If the node is killed before an attempt is written, the next one has the same number: the CRM may have more
//! calls than the ledger has attempts, but each call belongs to an attempt.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use sluice_simulator::crm::SeenCall;

/// Result of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AttemptCounts {
    /// Attempts in the ledger.
    pub attempts: u64,
    /// Attempts by outcome.
    pub outcomes: BTreeMap<String, u64>,
    /// Attempts whose call reached the CRM.
    pub arrived: u64,
    /// Attempts whose call did not: cut, unreachable, or without a token.
    pub never_arrived: u64,
    /// Further calls of an attempt: with a new token, or after a kill before the attempt was written.
    pub called_again: u64,
    /// Calls without an attempt in the ledger; must be 0.
    pub strange: u64,
    /// Attempts that are done without a call that changed a record; must be 0.
    pub unfounded: u64,
}

impl AttemptCounts {
    /// `attempts` holds the outcome by span id.
    pub(super) fn reconcile(attempts: &BTreeMap<u64, String>, calls: &[SeenCall]) -> AttemptCounts {
        let mut counts = AttemptCounts { attempts: attempts.len() as u64, ..AttemptCounts::default() };
        // Span ids at the CRM; true if one of the calls changed a record.
        let mut seen: HashMap<u64, bool> = HashMap::new();
        for call in calls {
            match span(call).filter(|span| attempts.contains_key(span)) {
                Some(span) => {
                    counts.called_again += u64::from(seen.contains_key(&span));
                    *seen.entry(span).or_default() |= call.applied;
                }
                None => counts.strange += 1,
            }
        }
        counts.arrived = seen.len() as u64;
        counts.never_arrived = counts.attempts - counts.arrived;
        for (span, outcome) in attempts {
            *counts.outcomes.entry(outcome.clone()).or_default() += 1;
            counts.unfounded += u64::from(outcome == "done" && !seen.get(span).copied().unwrap_or(false));
        }
        counts
    }
}

/// Span id: the third field of a W3C `traceparent`.
fn span(call: &SeenCall) -> Option<u64> {
    let text = call.traceparent.as_deref()?.split('-').nth(2)?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(span: u64, applied: bool) -> SeenCall {
        let traceparent = Some(format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{span:016x}-01"));
        SeenCall { number: 0, method: "PATCH".to_owned(), traceparent, applied, status: Some(200) }
    }

    fn attempts(all: &[(u64, &str)]) -> BTreeMap<u64, String> {
        all.iter().map(|(span, outcome)| (*span, (*outcome).to_owned())).collect()
    }

    #[test]
    fn attempts_and_calls_are_matched_by_span() {
        let attempts = attempts(&[(0x1001, "retry"), (0x1002, "unsure"), (0x1003, "done"), (0x2001, "done")]);
        let calls = [call(0x1001, false), call(0x1003, true), call(0x2001, false), call(0x2001, true)];
        let counts = AttemptCounts::reconcile(&attempts, &calls);
        let expected = AttemptCounts {
            attempts: 4,
            outcomes: BTreeMap::from([("done".to_owned(), 2), ("retry".to_owned(), 1), ("unsure".to_owned(), 1)]),
            arrived: 3,
            never_arrived: 1,
            called_again: 1,
            strange: 0,
            unfounded: 0,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn calls_without_attempt_and_successes_without_call_are_counted() {
        let attempts = attempts(&[(1, "done"), (2, "done"), (3, "done")]);
        let mut unmarked = call(3, true);
        unmarked.traceparent = None;
        let counts = AttemptCounts::reconcile(&attempts, &[call(1, true), call(2, false), call(9, true), unmarked]);
        assert_eq!((counts.strange, counts.unfounded), (2, 2));
    }
}
