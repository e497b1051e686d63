//! Log of data calls with trace and result.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::truth::CallEffect;
use crate::apply_fault::ReplyTruth;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenCall {
    /// Starts at 1, in order of arrival.
    pub number: u64,
    pub method: String,
    /// W3C `traceparent` header of the call.
    pub traceparent: Option<String>,
    /// It changed at least one record.
    pub applied: bool,
    /// Status of a complete response; none while the call is held or if the response was cut.
    pub status: Option<u16>,
}

/// The latest calls, up to a maximum.
#[derive(Debug)]
pub(super) struct CallLog {
    calls: VecDeque<SeenCall>,
    kept_max: usize,
    arrived: u64,
}

impl CallLog {
    pub(super) fn new(kept_max: usize) -> CallLog {
        CallLog { calls: VecDeque::new(), kept_max, arrived: 0 }
    }

    pub(super) fn clear(&mut self) {
        *self = CallLog::new(self.kept_max);
    }

    /// Records a call and returns its number.
    pub(super) fn record(&mut self, method: &str, traceparent: Option<&str>) -> u64 {
        self.arrived += 1;
        if self.calls.len() == self.kept_max {
            self.calls.pop_front();
        }
        if self.kept_max > 0 {
            self.calls.push_back(SeenCall {
                number: self.arrived,
                method: method.to_owned(),
                traceparent: traceparent.map(str::to_owned),
                applied: false,
                status: None,
            });
        }
        self.arrived
    }

    /// Records the result of a call if the log still holds it.
    pub(super) fn settle(&mut self, number: u64, effect: CallEffect, reply: ReplyTruth) {
        let forgotten = self.forgotten();
        let index = number.checked_sub(forgotten + 1).and_then(|index| usize::try_from(index).ok());
        let Some(call) = index.and_then(|index| self.calls.get_mut(index)) else { return };
        call.applied = effect == CallEffect::Applied;
        call.status = match reply {
            ReplyTruth::Accurate(status) | ReplyTruth::Ambiguous(status) => Some(status.as_u16()),
            ReplyTruth::NoReply => None,
        };
    }

    pub(super) fn page(&self, after: u64, limit: usize) -> Vec<SeenCall> {
        let skipped = usize::try_from(after.saturating_sub(self.forgotten())).unwrap_or(usize::MAX);
        self.calls.iter().skip(skipped).take(limit).cloned().collect()
    }

    pub(super) fn forgotten(&self) -> u64 {
        self.arrived - self.calls.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    #[test]
    fn latest_calls_are_kept_with_their_results() {
        let mut log = CallLog::new(2);
        let numbers: Vec<u64> = ["a", "b", "c"].map(|trace| log.record("PATCH", Some(trace))).into();
        assert_eq!(numbers, [1, 2, 3]);
        log.settle(1, CallEffect::Applied, ReplyTruth::Accurate(StatusCode::CREATED));
        log.settle(2, CallEffect::Applied, ReplyTruth::NoReply);
        log.settle(3, CallEffect::Unchanged, ReplyTruth::Ambiguous(StatusCode::BAD_GATEWAY));
        let summary = |call: &SeenCall| (call.number, call.applied, call.status);
        assert_eq!(log.page(0, 9).iter().map(summary).collect::<Vec<_>>(), [(2, true, None), (3, false, Some(502))]);
        assert_eq!(log.page(2, 9).iter().map(summary).collect::<Vec<_>>(), [(3, false, Some(502))]);
        assert_eq!(log.forgotten(), 1);
    }
}
