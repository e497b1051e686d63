//! Every data call that arrived: under which trace, and what became of it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::truth::Fate;
use crate::apply_fault::ReplyTruth;

/// One data call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenCall {
    /// Counts from 1 in the order of arrival.
    pub number: u64,
    pub method: String,
    /// The W3C `traceparent` that it carried.
    pub traceparent: Option<String>,
    /// It changed at least one record.
    pub applied: bool,
    /// The status of a whole answer; none while it is held, and none when it was cut.
    pub status: Option<u16>,
}

/// The latest calls, as many as are kept.
#[derive(Debug)]
pub(crate) struct CallLog {
    calls: VecDeque<SeenCall>,
    kept_max: usize,
    arrived: u64,
}

impl CallLog {
    pub(crate) fn new(kept_max: usize) -> CallLog {
        CallLog { calls: VecDeque::new(), kept_max, arrived: 0 }
    }

    pub(crate) fn clear(&mut self) {
        *self = CallLog::new(self.kept_max);
    }

    /// Enters a call and answers its number.
    pub(crate) fn enter(&mut self, method: &str, traceparent: Option<&str>) -> u64 {
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

    /// Enters what became of a call, if it is still kept.
    pub(crate) fn settle(&mut self, number: u64, fate: Fate, told: ReplyTruth) {
        let forgotten = self.forgotten();
        let place = number.checked_sub(forgotten + 1).and_then(|place| usize::try_from(place).ok());
        let Some(call) = place.and_then(|place| self.calls.get_mut(place)) else { return };
        call.applied = fate == Fate::Applied;
        call.status = match told {
            ReplyTruth::Truth(status) | ReplyTruth::Untruth(status) => Some(status.as_u16()),
            ReplyTruth::Nothing => None,
        };
    }

    pub(crate) fn page(&self, after: u64, limit: usize) -> Vec<SeenCall> {
        let skipped = usize::try_from(after.saturating_sub(self.forgotten())).unwrap_or(usize::MAX);
        self.calls.iter().skip(skipped).take(limit).cloned().collect()
    }

    pub(crate) fn forgotten(&self) -> u64 {
        self.arrived - self.calls.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    #[test]
    fn the_latest_calls_are_kept_with_what_became_of_them() {
        let mut log = CallLog::new(2);
        let numbers: Vec<u64> = ["a", "b", "c"].map(|trace| log.enter("PATCH", Some(trace))).into();
        assert_eq!(numbers, [1, 2, 3]);
        log.settle(1, Fate::Applied, ReplyTruth::Truth(StatusCode::CREATED));
        log.settle(2, Fate::Applied, ReplyTruth::Nothing);
        log.settle(3, Fate::Unchanged, ReplyTruth::Untruth(StatusCode::BAD_GATEWAY));
        let told = |call: &SeenCall| (call.number, call.applied, call.status);
        assert_eq!(log.page(0, 9).iter().map(told).collect::<Vec<_>>(), [(2, true, None), (3, false, Some(502))]);
        assert_eq!(log.page(2, 9).iter().map(told).collect::<Vec<_>>(), [(3, false, Some(502))]);
        assert_eq!(log.forgotten(), 1);
    }
}
