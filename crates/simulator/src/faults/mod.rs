//! Fault plans as data.
//!
//! A [`FaultPlan`] defines which faults happen and when. For every call the first match applies: the script (exact
//! calls), then the outages (time intervals), then the random faults (a share of all calls). Random faults depend
//! only on the seed and the number of the call, so the same calls in the same order get the same faults.

mod catalogue;
mod injector;
mod preset;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use catalogue::FAULTS;
pub(crate) use injector::{Call, Decision, Injector};
pub use preset::Everything;

/// Largest body of [`Fault::HugeBody`]: 64 GiB. It is streamed, never held in memory.
pub(crate) const HUGE_BODY_BYTES_MAX: u64 = 64 << 30;

/// One kind of failure.
///
/// "Applying" is the moment the server makes the requested change. A fault before it leaves the recorded truth
/// unchanged; a fault after it leaves a change that the caller does not know about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Applies and responds accurately, but late, even if the caller has disconnected in the meantime.
    Latency(Millis),
    /// Holds the connection without a response, then closes it. Nothing is applied.
    TimeoutBefore { hold_ms: u64 },
    /// Applies at once, holds the connection without a response, then closes it.
    TimeoutAfter { hold_ms: u64 },
    /// Closes the connection without a response. Nothing is applied.
    DropBefore,
    /// Applies, then closes the connection without a response.
    DropAfter,
    /// Applies, responds with the true status and length, and closes the connection in the middle of the body.
    CutResponse,
    /// 429. Nothing is applied.
    TooManyRequests { retry_after: RetryAfter },
    /// 403 `REQUEST_LIMIT_EXCEEDED`, the daily API request limit. Nothing is applied.
    RequestLimitExceeded,
    /// 500 with an error body. Nothing is applied.
    ErrorBefore,
    /// Applies, then responds 500 with an error body.
    ErrorAfter,
    /// 502, 503 or 504 with an HTML page, as from a gateway in front of the server.
    Gateway { status: u16, moment: Moment },
    /// 503 `SERVER_UNAVAILABLE`. Nothing is applied.
    ServerUnavailable,
    /// 400 `UNABLE_TO_LOCK_ROW` (the sink: 423). Writes only; nothing is applied.
    LockRow,
    /// 400 `DUPLICATE_VALUE` (the sink: 409). Writes only; the call itself is not applied. If the record did not exist,
    /// a concurrent writer has just created it with the required fields only, so a retried upsert becomes an update.
    DuplicateValue,
    /// 401 `INVALID_SESSION_ID`, whatever the token. Nothing is applied.
    InvalidSession,
    /// 200 with a body that does not match its content type.
    GarbageBody { moment: Moment },
    /// Applies, then responds 200 with a body of that many bytes and without a content length.
    HugeBody { bytes: u64 },
    /// Applies, then responds accurately, a few bytes at a time.
    TrickleBody { chunk_bytes: usize, gap_ms: u64 },
    /// 302 to the requested URL itself. Nothing is applied.
    RedirectLoop,
    /// Reads only: reports that nothing is found, as a lagging replica does.
    StaleRead,
    /// Responds with this code: an HTTP status or an SMTP reply code. Nothing is applied.
    Reply { code: u16 },
}

/// Range of milliseconds, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Millis {
    pub min_ms: u64,
    pub max_ms: u64,
}

impl Millis {
    pub fn fixed(ms: u64) -> Millis {
        Millis { min_ms: ms, max_ms: ms }
    }

    pub fn between(min_ms: u64, max_ms: u64) -> Millis {
        Millis { min_ms, max_ms }
    }
}

/// Whether the change is applied before the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    BeforeApplying,
    AfterApplying,
}

/// `Retry-After` of a 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfter {
    /// `Retry-After: 2`
    Seconds(u32),
    /// `Retry-After: <HTTP date>`, this many seconds from now.
    HttpDate(u32),
    Absent,
    /// An unreasonably large number of seconds.
    Absurd,
}

/// Kind of a fault without its settings; the key of the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    Latency,
    TimeoutBefore,
    TimeoutAfter,
    DropBefore,
    DropAfter,
    CutResponse,
    TooManyRequests,
    RequestLimitExceeded,
    ErrorBefore,
    ErrorAfter,
    Gateway,
    ServerUnavailable,
    LockRow,
    DuplicateValue,
    InvalidSession,
    GarbageBody,
    HugeBody,
    TrickleBody,
    RedirectLoop,
    StaleRead,
    Reply,
}

impl Fault {
    pub fn kind(&self) -> FaultKind {
        match self {
            Fault::Latency(_) => FaultKind::Latency,
            Fault::TimeoutBefore { .. } => FaultKind::TimeoutBefore,
            Fault::TimeoutAfter { .. } => FaultKind::TimeoutAfter,
            Fault::DropBefore => FaultKind::DropBefore,
            Fault::DropAfter => FaultKind::DropAfter,
            Fault::CutResponse => FaultKind::CutResponse,
            Fault::TooManyRequests { .. } => FaultKind::TooManyRequests,
            Fault::RequestLimitExceeded => FaultKind::RequestLimitExceeded,
            Fault::ErrorBefore => FaultKind::ErrorBefore,
            Fault::ErrorAfter => FaultKind::ErrorAfter,
            Fault::Gateway { .. } => FaultKind::Gateway,
            Fault::ServerUnavailable => FaultKind::ServerUnavailable,
            Fault::LockRow => FaultKind::LockRow,
            Fault::DuplicateValue => FaultKind::DuplicateValue,
            Fault::InvalidSession => FaultKind::InvalidSession,
            Fault::GarbageBody { .. } => FaultKind::GarbageBody,
            Fault::HugeBody { .. } => FaultKind::HugeBody,
            Fault::TrickleBody { .. } => FaultKind::TrickleBody,
            Fault::RedirectLoop => FaultKind::RedirectLoop,
            Fault::StaleRead => FaultKind::StaleRead,
            Fault::Reply { .. } => FaultKind::Reply,
        }
    }

    fn applies_to(&self, calls: CallKind) -> bool {
        match self {
            Fault::LockRow | Fault::DuplicateValue => calls == CallKind::Write,
            Fault::StaleRead => calls == CallKind::Read,
            _ => true,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// Requests an access token.
    Token,
    Read,
    Write,
}

/// Which faults happen and when. The empty plan, [`FaultPlan::none`], injects none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultPlan {
    /// Determines every random choice.
    pub seed: u64,
    /// Added to every call in `calls`, in addition to any fault.
    pub latency: Option<Millis>,
    /// Calls affected by latency, outages and random faults. Scripted faults match by themselves.
    pub calls: Vec<CallKind>,
    /// Faults for exact calls; the first entry that matches and is not exhausted applies.
    pub script: Vec<Scripted>,
    /// Time intervals in which every call fails.
    pub outages: Vec<Outage>,
    /// Share of calls, in percent, that get a fault from `random`.
    pub percent: f64,
    pub random: Vec<Weighted>,
}

/// Fault for exact calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scripted {
    /// Matching calls; all calls if absent.
    #[serde(default)]
    pub when: Match,
    /// Matching calls that pass before the first fault.
    #[serde(default)]
    pub skip: u64,
    /// Matching calls that fail after that; unlimited if absent.
    #[serde(default)]
    pub times: Option<u64>,
    pub fault: Fault,
}

impl Scripted {
    /// The first `times` calls fail with `fault`.
    pub fn first(times: u64, fault: Fault) -> Scripted {
        Scripted { when: Match::default(), skip: 0, times: Some(times), fault }
    }

    /// Every call for this external id (the sink: idempotency key or resource id) fails with `fault`.
    pub fn for_key(key: impl Into<String>, fault: Fault) -> Scripted {
        Scripted { when: Match { key: Some(key.into()), ..Match::default() }, skip: 0, times: None, fault }
    }

    /// Limits the number of failures.
    pub fn times(self, times: u64) -> Scripted {
        Scripted { times: Some(times), ..self }
    }

    /// Restricts to calls of this kind.
    pub fn only(mut self, kind: CallKind) -> Scripted {
        self.when.kind = Some(kind);
        self
    }

    /// Restricts to calls with this method; for SMTP, to this step.
    pub fn at(mut self, method: impl Into<String>) -> Scripted {
        self.when.method = Some(method.into());
        self
    }

    /// Lets this many matching calls pass first.
    pub fn after(self, skip: u64) -> Scripted {
        Scripted { skip, ..self }
    }
}

/// Conditions on a call; all that are set must hold. Token calls match only if `kind` selects them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    pub kind: Option<CallKind>,
    pub method: Option<String>,
    pub path_contains: Option<String>,
    /// External id in the path; for the sink, the idempotency key or resource id.
    pub key: Option<String>,
}

/// Time interval in which every call fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Counted from the installation of the plan.
    pub from_ms: u64,
    pub to_ms: u64,
    /// Period of repetition; once only if absent.
    #[serde(default)]
    pub every_ms: Option<u64>,
    pub fault: Fault,
}

/// Fault and its relative weight.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Weighted {
    #[serde(default = "one")]
    pub weight: u32,
    pub fault: Fault,
}

fn one() -> u32 {
    1
}

impl Default for FaultPlan {
    fn default() -> FaultPlan {
        FaultPlan {
            seed: 0,
            latency: None,
            calls: vec![CallKind::Read, CallKind::Write],
            script: Vec::new(),
            outages: Vec::new(),
            percent: 0.0,
            random: Vec::new(),
        }
    }
}

impl FaultPlan {
    pub fn none() -> FaultPlan {
        FaultPlan::default()
    }

    /// Only these exact calls fail.
    pub fn scripted(script: impl IntoIterator<Item = Scripted>) -> FaultPlan {
        FaultPlan { script: script.into_iter().collect(), ..FaultPlan::default() }
    }

    /// Every call fails with this fault.
    pub fn always(fault: Fault) -> FaultPlan {
        FaultPlan { percent: 100.0, random: vec![Weighted { weight: 1, fault }], ..FaultPlan::default() }
    }

    /// Validates the plan.
    pub fn check(&self) -> Result<(), PlanError> {
        if !(0.0..=100.0).contains(&self.percent) {
            return Err(PlanError::Percent(self.percent));
        }
        if self.percent > 0.0 && !self.random.iter().any(|weighted| weighted.weight > 0) {
            return Err(PlanError::NothingToDraw);
        }
        for outage in &self.outages {
            let period_ok = outage.every_ms.is_none_or(|every| every >= outage.to_ms);
            if outage.from_ms >= outage.to_ms || !period_ok {
                return Err(PlanError::Outage { from_ms: outage.from_ms, to_ms: outage.to_ms });
            }
        }
        self.latency.iter().try_for_each(check_millis)?;
        let scripted = self.script.iter().map(|scripted| &scripted.fault);
        let outages = self.outages.iter().map(|outage| &outage.fault);
        let drawn = self.random.iter().map(|weighted| &weighted.fault);
        scripted.chain(outages).chain(drawn).try_for_each(check_fault)
    }
}

fn check_millis(millis: &Millis) -> Result<(), PlanError> {
    if millis.min_ms > millis.max_ms { Err(PlanError::InvertedRange(*millis)) } else { Ok(()) }
}

fn check_fault(fault: &Fault) -> Result<(), PlanError> {
    match fault {
        Fault::Latency(millis) => check_millis(millis),
        Fault::Gateway { status, .. } if !(502..=504).contains(status) => Err(PlanError::Gateway(*status)),
        Fault::HugeBody { bytes } if *bytes > HUGE_BODY_BYTES_MAX => Err(PlanError::Huge(*bytes)),
        Fault::TrickleBody { chunk_bytes: 0, .. } => Err(PlanError::Trickle),
        Fault::Reply { code } if !(200..600).contains(code) => Err(PlanError::Reply(*code)),
        _ => Ok(()),
    }
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("percent is {0}; it must be between 0 and 100")]
    Percent(f64),
    #[error("percent is above 0, but `random` has no fault with a positive weight")]
    NothingToDraw,
    #[error("an outage from {from_ms} to {to_ms} ms must end after its start and before its next repetition")]
    Outage { from_ms: u64, to_ms: u64 },
    #[error("the range of {0} has its minimum above its maximum")]
    InvertedRange(Millis),
    #[error("the status of a gateway fault must be 502, 503 or 504, not {0}")]
    Gateway(u16),
    #[error("a body of {0} bytes exceeds the maximum of {HUGE_BODY_BYTES_MAX}")]
    Huge(u64),
    #[error("chunk_bytes of trickle_body must be at least 1")]
    Trickle,
    #[error("the code of a reply must be between 200 and 599, not {0}")]
    Reply(u16),
}

impl fmt::Display for Millis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} to {} ms", self.min_ms, self.max_ms)
    }
}
