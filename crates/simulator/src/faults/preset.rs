//! Preset plan with every fault that a correct caller must survive.

use super::{Fault, FaultPlan, Millis, Moment, RetryAfter, Weighted};

/// Preset: `percent` of all calls fail, with every fault equally likely.
///
/// Excludes [`Fault::StaleRead`]: after a wrong read no caller can know the truth. Request it explicitly.
#[derive(Debug, Clone, PartialEq)]
pub struct Everything {
    /// Share of calls that fail, in percent.
    pub percent: f64,
    pub seed: u64,
    /// How long timeouts hold the connection; also the longest latency.
    pub hold_ms: u64,
    /// `Retry-After` of a 429.
    pub retry_after_seconds: u32,
    pub huge_bytes: u64,
}

impl Default for Everything {
    fn default() -> Everything {
        Everything { percent: 30.0, seed: 0, hold_ms: 2_000, retry_after_seconds: 1, huge_bytes: 64 << 20 }
    }
}

impl Everything {
    pub fn plan(&self) -> FaultPlan {
        let random = self.faults().into_iter().map(|fault| Weighted { weight: 1, fault }).collect();
        FaultPlan { seed: self.seed, percent: self.percent, random, ..FaultPlan::default() }
    }

    fn faults(&self) -> Vec<Fault> {
        let hold_ms = self.hold_ms;
        let retry_after = |retry_after| Fault::TooManyRequests { retry_after };
        let gateway = |status, moment| Fault::Gateway { status, moment };
        vec![
            Fault::Latency(Millis::between(hold_ms / 10, hold_ms)),
            Fault::TimeoutBefore { hold_ms },
            Fault::TimeoutAfter { hold_ms },
            Fault::DropBefore,
            Fault::DropAfter,
            Fault::CutResponse,
            retry_after(RetryAfter::Seconds(self.retry_after_seconds)),
            retry_after(RetryAfter::HttpDate(self.retry_after_seconds)),
            retry_after(RetryAfter::Absent),
            retry_after(RetryAfter::Absurd),
            Fault::RequestLimitExceeded,
            Fault::ErrorBefore,
            Fault::ErrorAfter,
            gateway(502, Moment::BeforeApplying),
            gateway(502, Moment::AfterApplying),
            gateway(503, Moment::BeforeApplying),
            gateway(504, Moment::BeforeApplying),
            gateway(504, Moment::AfterApplying),
            Fault::ServerUnavailable,
            Fault::LockRow,
            Fault::DuplicateValue,
            Fault::InvalidSession,
            Fault::GarbageBody { moment: Moment::BeforeApplying },
            Fault::GarbageBody { moment: Moment::AfterApplying },
            Fault::HugeBody { bytes: self.huge_bytes },
            Fault::TrickleBody { chunk_bytes: 16, gap_ms: hold_ms / 50 },
            Fault::RedirectLoop,
        ]
    }
}
