//! Every attempt that the ledger has against every call that the CRM has seen.
//!
//! A call carries the span of its attempt, which the job and the number of the try make. So calls are not only counted: each is
//! looked up. A call whose attempt was not yet written down when the node was killed is made again under the same number, so
//! the CRM may know more calls than the ledger has attempts, but none that belongs to no attempt.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use sluice_simulator::salesforce::SeenCall;

/// How the two accounts compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AttemptCounts {
    /// Attempts in the ledger.
    pub attempts: u64,
    /// These by what came of them.
    pub outcomes: BTreeMap<String, u64>,
    /// Attempts whose call the CRM has seen.
    pub arrived: u64,
    /// Attempts whose call it has not seen: cut, out of reach, or without a token.
    pub never_arrived: u64,
    /// Calls beyond the first of an attempt: sent again with a new token, or by a node whose last one was not yet written down.
    pub called_again: u64,
    /// Calls that no attempt in the ledger has made; there must be none.
    pub strange: u64,
    /// Attempts that are done, and the CRM knows of no call of theirs that changed anything; there must be none.
    pub unfounded: u64,
}

impl AttemptCounts {
    /// Of attempts by their span, and calls.
    pub(super) fn balance(attempts: &BTreeMap<u64, String>, calls: &[SeenCall]) -> AttemptCounts {
        let mut book = AttemptCounts { attempts: attempts.len() as u64, ..AttemptCounts::default() };
        // Each span that the CRM has seen, and whether one of its calls changed something.
        let mut seen: HashMap<u64, bool> = HashMap::new();
        for call in calls {
            match span(call).filter(|span| attempts.contains_key(span)) {
                Some(span) => {
                    book.called_again += u64::from(seen.contains_key(&span));
                    *seen.entry(span).or_default() |= call.applied;
                }
                None => book.strange += 1,
            }
        }
        book.arrived = seen.len() as u64;
        book.never_arrived = book.attempts - book.arrived;
        for (span, outcome) in attempts {
            *book.outcomes.entry(outcome.clone()).or_default() += 1;
            book.unfounded += u64::from(outcome == "done" && !seen.get(span).copied().unwrap_or(false));
        }
        book
    }
}

/// The third part of a W3C `traceparent`.
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
    fn each_attempt_and_each_call_finds_its_other_side() {
        let attempts = attempts(&[(0x1001, "retry"), (0x1002, "unsure"), (0x1003, "done"), (0x2001, "done")]);
        let calls = [call(0x1001, false), call(0x1003, true), call(0x2001, false), call(0x2001, true)];
        let book = AttemptCounts::balance(&attempts, &calls);
        let expected = AttemptCounts {
            attempts: 4,
            outcomes: BTreeMap::from([("done".to_owned(), 2), ("retry".to_owned(), 1), ("unsure".to_owned(), 1)]),
            arrived: 3,
            never_arrived: 1,
            called_again: 1,
            strange: 0,
            unfounded: 0,
        };
        assert_eq!(book, expected);
    }

    #[test]
    fn a_call_of_nobody_and_a_success_without_a_call_are_found() {
        let attempts = attempts(&[(1, "done"), (2, "done"), (3, "done")]);
        let mut unmarked = call(3, true);
        unmarked.traceparent = None;
        let book = AttemptCounts::balance(&attempts, &[call(1, true), call(2, false), call(9, true), unmarked]);
        assert_eq!((book.strange, book.unfounded), (2, 2));
    }
}
