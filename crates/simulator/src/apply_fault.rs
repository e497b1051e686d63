//! Carries out a decision on one call, the same way for every simulated server.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{LOCATION, RETRY_AFTER};
use hyper::{Response, StatusCode};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

use crate::faults::{Decision, Fault, Moment, RetryAfter};
use crate::reply::{FakeReply, Hangup, Payload};

/// About 317 years.
const ABSURD_SECONDS: &str = "9999999999";

/// A refusal that each server puts in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooManyRequests,
    RequestLimitExceeded,
    ServerError,
    ServerUnavailable,
    LockRow,
    DuplicateValue,
    InvalidSession,
}

/// What the caller came to know, and under which status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyTruth {
    /// The answer says what happened.
    Truth(StatusCode),
    /// The answer hides whether the change was made.
    Untruth(StatusCode),
    /// No whole answer.
    Nothing,
}

/// One call as its server sees it.
pub(crate) trait FakeTarget: Send + 'static {
    /// Makes the change and says what the honest answer is.
    fn apply(&mut self) -> FakeReply;
    fn refuse(&mut self, refusal: Refusal) -> FakeReply;
    /// The answer of a read that finds nothing.
    fn absent(&mut self) -> FakeReply;
    /// The address that was asked, for a redirect to itself.
    fn address(&self) -> String;
    /// Called once, when the fate of the call is known and before any of the answer leaves.
    fn settle(&mut self, told: ReplyTruth);
}

/// Does one call under a decision. A call that must wait goes on when its caller has hung up, as it would in a server
/// that does not notice; that is what makes a late write possible.
pub(crate) async fn perform(decision: Decision, mut target: impl FakeTarget) -> Result<Response<Payload>, Hangup> {
    match decision {
        Decision { latency: Duration::ZERO, fault: None } => Ok(honest(&mut target).whole()),
        // A task that panicked must not look like an answer.
        decision => tokio::spawn(carry_out(decision, target)).await.map_err(|_| Hangup)?,
    }
}

async fn carry_out(decision: Decision, mut target: impl FakeTarget) -> Result<Response<Payload>, Hangup> {
    if !decision.latency.is_zero() {
        tokio::time::sleep(decision.latency).await;
    }
    let Some(fault) = decision.fault else { return Ok(honest(&mut target).whole()) };
    match fault {
        Fault::Latency(millis) => {
            tokio::time::sleep(Duration::from_millis(millis.max_ms)).await;
            Ok(honest(&mut target).whole())
        }
        Fault::TrickleBody { chunk_bytes, gap_ms } => {
            Ok(honest(&mut target).trickle(chunk_bytes, Duration::from_millis(gap_ms)))
        }
        Fault::TimeoutBefore { hold_ms } => {
            target.settle(ReplyTruth::Nothing);
            hang_up_after(hold_ms).await
        }
        Fault::TimeoutAfter { hold_ms } => {
            target.apply();
            target.settle(ReplyTruth::Nothing);
            hang_up_after(hold_ms).await
        }
        Fault::DropBefore => {
            target.settle(ReplyTruth::Nothing);
            Err(Hangup)
        }
        Fault::DropAfter => {
            target.apply();
            target.settle(ReplyTruth::Nothing);
            Err(Hangup)
        }
        Fault::CutResponse => {
            let reply = target.apply();
            target.settle(ReplyTruth::Nothing);
            Ok(reply.cut())
        }
        Fault::HugeBody { bytes } => {
            let reply = target.apply();
            target.settle(ReplyTruth::Untruth(StatusCode::OK));
            Ok(reply.huge(bytes))
        }
        answered => Ok(answer(answered, &mut target).whole()),
    }
}

fn honest(target: &mut impl FakeTarget) -> FakeReply {
    let reply = target.apply();
    target.settle(ReplyTruth::Truth(reply.status));
    reply
}

async fn hang_up_after(hold_ms: u64) -> Result<Response<Payload>, Hangup> {
    tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    Err(Hangup)
}

/// The faults that end in a whole answer at once.
fn answer(fault: Fault, target: &mut impl FakeTarget) -> FakeReply {
    let (reply, told): (FakeReply, fn(StatusCode) -> ReplyTruth) = match fault {
        Fault::TooManyRequests { retry_after } => {
            (with_retry_after(target.refuse(Refusal::TooManyRequests), retry_after), ReplyTruth::Truth)
        }
        Fault::RequestLimitExceeded => (target.refuse(Refusal::RequestLimitExceeded), ReplyTruth::Truth),
        Fault::ServerUnavailable => (target.refuse(Refusal::ServerUnavailable), ReplyTruth::Truth),
        Fault::LockRow => (target.refuse(Refusal::LockRow), ReplyTruth::Truth),
        Fault::DuplicateValue => (target.refuse(Refusal::DuplicateValue), ReplyTruth::Truth),
        Fault::InvalidSession => (target.refuse(Refusal::InvalidSession), ReplyTruth::Truth),
        Fault::ErrorBefore => (target.refuse(Refusal::ServerError), ReplyTruth::Untruth),
        Fault::ErrorAfter => {
            target.apply();
            (target.refuse(Refusal::ServerError), ReplyTruth::Untruth)
        }
        Fault::Gateway { status, moment } => {
            apply_at(moment, target);
            (gateway(status), ReplyTruth::Untruth)
        }
        Fault::GarbageBody { moment } => {
            apply_at(moment, target);
            (garbage(), ReplyTruth::Untruth)
        }
        Fault::RedirectLoop => {
            let address = target.address();
            (FakeReply::empty(StatusCode::FOUND).with(LOCATION, &address), ReplyTruth::Truth)
        }
        Fault::StaleRead => (target.absent(), ReplyTruth::Untruth),
        Fault::Reply { code } => {
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (FakeReply::json(status, &serde_json::json!({"error": "on order"})), ReplyTruth::Truth)
        }
        Fault::Latency(_)
        | Fault::TrickleBody { .. }
        | Fault::TimeoutBefore { .. }
        | Fault::TimeoutAfter { .. }
        | Fault::DropBefore
        | Fault::DropAfter
        | Fault::CutResponse
        | Fault::HugeBody { .. } => (target.apply(), ReplyTruth::Truth),
    };
    target.settle(told(reply.status));
    reply
}

fn apply_at(moment: Moment, target: &mut impl FakeTarget) {
    if moment == Moment::AfterApplying {
        target.apply();
    }
}

fn with_retry_after(reply: FakeReply, retry_after: RetryAfter) -> FakeReply {
    match retry_after {
        RetryAfter::Seconds(seconds) => reply.with(RETRY_AFTER, &seconds.to_string()),
        RetryAfter::HttpDate(seconds) => reply.with(RETRY_AFTER, &http_date(seconds)),
        RetryAfter::Absent => reply,
        RetryAfter::Absurd => reply.with(RETRY_AFTER, ABSURD_SECONDS),
    }
}

fn http_date(seconds_from_now: u32) -> String {
    // A date has whole seconds; rounding up keeps it from lying in the past when it is read.
    let second = Timestamp::now().as_second() + i64::from(seconds_from_now) + 1;
    let when = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
    DateTimePrinter::new().timestamp_to_rfc9110_string(&when).expect("a date of this era can be written for HTTP")
}

fn gateway(status: u16) -> FakeReply {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let page = format!(
        "<html>\r\n<head><title>{status}</title></head>\r\n<body>\r\n<center><h1>{status}</h1></center>\r\n\
         <hr><center>edge</center>\r\n</body>\r\n</html>\r\n"
    );
    FakeReply::of(status, "text/html", page)
}

fn garbage() -> FakeReply {
    FakeReply::of(
        StatusCode::OK,
        "application/json;charset=UTF-8",
        Bytes::from_static(b"{\"id\":\"00Q\xff\x00<<not json"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_dates_lie_ahead_and_parse_as_http_dates() {
        let reply = with_retry_after(FakeReply::empty(StatusCode::TOO_MANY_REQUESTS), RetryAfter::HttpDate(30));
        let text = reply.headers[RETRY_AFTER].to_str().unwrap();
        assert!(text.ends_with(" GMT"), "{text}");
        let parsed = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).unwrap();
        let ahead = parsed.as_second() - Timestamp::now().as_second();
        assert!((29..=31).contains(&ahead), "{ahead} s");
    }
}
