//! Faults on order, as data.
//!
//! A [`FaultPlan`] says what goes wrong and when. It is looked at in three steps for every call, and the first that
//! has something to say wins: the script (exact calls), then the outages (stretches of time), then the dice (a share
//! of all calls). The dice depend only on the seed and on the number of the call, so the same calls in the same order
//! meet the same faults.

mod injector;
mod preset;

use std::fmt;

use serde::{Deserialize, Serialize};

pub(crate) use injector::{Call, Decision, Injector};
pub use preset::Everything;

/// The largest body a [`Fault::HugeBody`] may ask for: 64 GiB. It is streamed, never held.
pub const HUGE_BODY_BYTES_MAX: u64 = 64 << 30;

/// One way to misbehave.
///
/// "Applying" is the moment the server makes the change the call asks for. A fault before it leaves no trace in the
/// truth; a fault after it leaves a change that the caller was not told about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Applies and answers truthfully, but late, even when the caller has gone away in the meantime.
    Latency(Millis),
    /// Holds the connection without an answer, then closes it. Nothing is applied.
    TimeoutBefore { hold_ms: u64 },
    /// Applies at once, holds the connection without an answer, then closes it.
    TimeoutAfter { hold_ms: u64 },
    /// Closes the connection without an answer. Nothing is applied.
    DropBefore,
    /// Applies, then closes the connection without an answer.
    DropAfter,
    /// Applies, answers with the true status and length, and closes the connection in the middle of the body.
    CutResponse,
    /// 429. Nothing is applied.
    TooManyRequests { retry_after: RetryAfter },
    /// 403 `REQUEST_LIMIT_EXCEEDED`, as when the calls of a day are used up. Nothing is applied.
    RequestLimitExceeded,
    /// 500 with an error body. Nothing is applied.
    ErrorBefore,
    /// Applies, then answers 500 with an error body.
    ErrorAfter,
    /// 502, 503 or 504 with an HTML page, as from a gateway in front of the server.
    Gateway { status: u16, moment: Moment },
    /// 503 `SERVER_UNAVAILABLE`. Nothing is applied.
    ServerUnavailable,
    /// 400 `UNABLE_TO_LOCK_ROW` (the sink: 423). Writes only; nothing is applied.
    LockRow,
    /// 400 `DUPLICATE_VALUE` (the sink: 409). Writes only; nothing of the call is applied. When the record did not exist, a rival has just created
    /// it with the required fields only, so that repeating the upsert becomes an update.
    DuplicateValue,
    /// 401 `INVALID_SESSION_ID`, whatever token was sent. Nothing is applied.
    InvalidSession,
    /// 200 with a body that is not what its content type says.
    GarbageBody { moment: Moment },
    /// Applies, then answers 200 with a body of that many bytes and no announced length.
    HugeBody { bytes: u64 },
    /// Applies, then answers truthfully, a few bytes at a time.
    TrickleBody { chunk_bytes: usize, gap_ms: u64 },
    /// 302 to the very address that was asked. Nothing is applied.
    RedirectLoop,
    /// Reads only: answers that there is nothing, whatever is there, as a replica that lags would.
    StaleRead,
    /// Answers with this code: a status over HTTP, a reply over SMTP. Nothing is applied.
    Reply { code: u16 },
}

/// A stretch of milliseconds; one value when both ends are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Millis {
    pub min_ms: u64,
    pub max_ms: u64,
}

impl Millis {
    /// Always the same.
    pub fn fixed(ms: u64) -> Millis {
        Millis { min_ms: ms, max_ms: ms }
    }

    /// Anything between the two, both included.
    pub fn between(min_ms: u64, max_ms: u64) -> Millis {
        Millis { min_ms, max_ms }
    }
}

/// Whether the change has been made when the fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    BeforeApplying,
    AfterApplying,
}

/// What a 429 says about when to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfter {
    /// `Retry-After: 2`
    Seconds(u32),
    /// `Retry-After: <HTTP date>`, so many seconds from now.
    HttpDate(u32),
    /// No header at all.
    Absent,
    /// A number of seconds that no one should obey.
    Absurd,
}

/// The name of a fault without its settings; what the counts are kept by.
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
    /// The name of this fault without its settings.
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

    fn fits(&self, calls: CallKind) -> bool {
        match self {
            Fault::LockRow | Fault::DuplicateValue => calls == CallKind::Write,
            Fault::StaleRead => calls == CallKind::Read,
            _ => true,
        }
    }
}

/// What a call is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// Asks for an access token.
    Token,
    /// Asks for something without changing it.
    Read,
    /// Asks for a change.
    Write,
}

/// Everything that shall go wrong. The empty plan, [`FaultPlan::none`], lets every call through.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultPlan {
    /// Decides every random choice.
    pub seed: u64,
    /// Added to every call in `calls`, on top of any fault.
    pub latency: Option<Millis>,
    /// Which calls the latency, the outages and the dice may strike. Scripted faults choose for themselves.
    pub calls: Vec<CallKind>,
    /// Faults for exact calls; the first entry that matches and has turns left wins.
    pub script: Vec<Scripted>,
    /// Stretches of time in which every call fails.
    pub outages: Vec<Outage>,
    /// The share of calls, in percent, that draws a fault from `random`.
    pub percent: f64,
    /// The faults to draw from.
    pub random: Vec<Weighted>,
}

/// A fault for exact calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scripted {
    /// Which calls are meant; all of them when left out.
    #[serde(default)]
    pub when: Match,
    /// How many matching calls pass unharmed first.
    #[serde(default)]
    pub skip: u64,
    /// How many matching calls are struck after that; without end when left out.
    #[serde(default)]
    pub times: Option<u64>,
    pub fault: Fault,
}

impl Scripted {
    /// The first `times` calls meet `fault`.
    pub fn first(times: u64, fault: Fault) -> Scripted {
        Scripted { when: Match::default(), skip: 0, times: Some(times), fault }
    }

    /// Every call for this external id (the sink: idempotency key or resource id) meets `fault`.
    pub fn for_key(key: impl Into<String>, fault: Fault) -> Scripted {
        Scripted { when: Match { key: Some(key.into()), ..Match::default() }, skip: 0, times: None, fault }
    }

    /// Strikes at most this many times.
    pub fn times(self, times: u64) -> Scripted {
        Scripted { times: Some(times), ..self }
    }

    /// Strikes only calls of this kind.
    pub fn only(mut self, kind: CallKind) -> Scripted {
        self.when.kind = Some(kind);
        self
    }

    /// Strikes only calls with this method; at a mail server, only this step.
    pub fn at(mut self, method: impl Into<String>) -> Scripted {
        self.when.method = Some(method.into());
        self
    }

    /// Lets this many matching calls pass first.
    pub fn after(self, skip: u64) -> Scripted {
        Scripted { skip, ..self }
    }
}

/// Which calls a scripted fault means: those that agree with everything that is set. Token calls are meant only when
/// `kind` says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    pub kind: Option<CallKind>,
    pub method: Option<String>,
    pub path_contains: Option<String>,
    /// The external id in the path; at the sink, the idempotency key or the resource id.
    pub key: Option<String>,
}

/// A stretch of time in which every call fails.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Counted from the moment the plan was installed.
    pub from_ms: u64,
    pub to_ms: u64,
    /// Comes back with this period; once only when left out.
    #[serde(default)]
    pub every_ms: Option<u64>,
    pub fault: Fault,
}

/// A fault and how often it is drawn compared with the others.
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
    /// Nothing goes wrong.
    pub fn none() -> FaultPlan {
        FaultPlan::default()
    }

    /// `percent` of all calls fail, in every way there is, with waits of about two seconds; see [`Everything`] for
    /// shorter ones.
    pub fn everything_at(percent: f64, seed: u64) -> FaultPlan {
        Everything { percent, seed, ..Everything::default() }.plan()
    }

    /// Only these exact calls go wrong.
    pub fn scripted(script: impl IntoIterator<Item = Scripted>) -> FaultPlan {
        FaultPlan { script: script.into_iter().collect(), ..FaultPlan::default() }
    }

    /// Every call goes wrong in this way.
    pub fn always(fault: Fault) -> FaultPlan {
        FaultPlan { percent: 100.0, random: vec![Weighted { weight: 1, fault }], ..FaultPlan::default() }
    }

    /// Whether the plan can be carried out as written.
    pub fn check(&self) -> Result<(), PlanError> {
        if !(0.0..=100.0).contains(&self.percent) {
            return Err(PlanError::Percent(self.percent));
        }
        if self.percent > 0.0 && !self.random.iter().any(|weighted| weighted.weight > 0) {
            return Err(PlanError::NothingToDraw);
        }
        for outage in &self.outages {
            let long_enough = outage.every_ms.is_none_or(|every| every >= outage.to_ms);
            if outage.from_ms >= outage.to_ms || !long_enough {
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
    if millis.min_ms > millis.max_ms { Err(PlanError::Backwards(*millis)) } else { Ok(()) }
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

/// Why a plan cannot be carried out.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    #[error("percent is {0}; it must lie between 0 and 100")]
    Percent(f64),
    #[error("percent is above 0, but `random` has no fault with a weight to draw")]
    NothingToDraw,
    #[error("an outage from {from_ms} to {to_ms} ms must end after it starts, and before it comes back")]
    Outage { from_ms: u64, to_ms: u64 },
    #[error("a range of {0} has its ends the wrong way round")]
    Backwards(Millis),
    #[error("a gateway answers 502, 503 or 504, not {0}")]
    Gateway(u16),
    #[error("a body of {0} bytes is more than {HUGE_BODY_BYTES_MAX}")]
    Huge(u64),
    #[error("a trickle needs at least one byte at a time")]
    Trickle,
    #[error("an answer has a code from 200 to 599, not {0}")]
    Reply(u16),
}

impl fmt::Display for Millis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} to {} ms", self.min_ms, self.max_ms)
    }
}
