//! Applies the injector's decision to one call, identically for every simulated server.

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

/// Refusal whose response each server formats in its own way.
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

/// What the response tells the caller about the change, with its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyTruth {
    /// Tells whether the change was made.
    Accurate(StatusCode),
    /// Does not tell whether the change was made.
    Ambiguous(StatusCode),
    /// No complete response.
    NoReply,
}

/// One call on a simulated server.
pub(crate) trait FakeTarget: Send + 'static {
    /// Makes the change and returns the accurate response.
    fn apply(&mut self) -> FakeReply;
    fn refuse(&mut self, refusal: Refusal) -> FakeReply;
    /// Response of a read that finds nothing.
    fn absent(&mut self) -> FakeReply;
    /// URL of the request, for a redirect to itself.
    fn address(&self) -> String;
    /// Called once, when the result of the call is known and before any of the response is sent.
    fn settle(&mut self, reply: ReplyTruth);
}

/// Runs one call under a decision. A delayed call continues after its caller has disconnected, as in a server that
/// does not notice the disconnect; this makes late writes possible.
pub(crate) async fn apply_fault(decision: Decision, mut target: impl FakeTarget) -> Result<Response<Payload>, Hangup> {
    match decision {
        Decision { latency: Duration::ZERO, fault: None } => Ok(accurate(&mut target).complete()),
        // A panicked task must not look like a response.
        decision => tokio::spawn(apply_delayed(decision, target)).await.map_err(|_| Hangup)?,
    }
}

async fn apply_delayed(decision: Decision, mut target: impl FakeTarget) -> Result<Response<Payload>, Hangup> {
    if !decision.latency.is_zero() {
        tokio::time::sleep(decision.latency).await;
    }
    let Some(fault) = decision.fault else { return Ok(accurate(&mut target).complete()) };
    match fault {
        Fault::Latency(millis) => {
            tokio::time::sleep(Duration::from_millis(millis.max_ms)).await;
            Ok(accurate(&mut target).complete())
        }
        Fault::TrickleBody { chunk_bytes, gap_ms } => {
            Ok(accurate(&mut target).trickle(chunk_bytes, Duration::from_millis(gap_ms)))
        }
        Fault::TimeoutBefore { hold_ms } => {
            target.settle(ReplyTruth::NoReply);
            close_after(hold_ms).await
        }
        Fault::TimeoutAfter { hold_ms } => {
            target.apply();
            target.settle(ReplyTruth::NoReply);
            close_after(hold_ms).await
        }
        Fault::DropBefore => {
            target.settle(ReplyTruth::NoReply);
            Err(Hangup)
        }
        Fault::DropAfter => {
            target.apply();
            target.settle(ReplyTruth::NoReply);
            Err(Hangup)
        }
        Fault::CutResponse => {
            let reply = target.apply();
            target.settle(ReplyTruth::NoReply);
            Ok(reply.truncated())
        }
        Fault::HugeBody { bytes } => {
            let reply = target.apply();
            target.settle(ReplyTruth::Ambiguous(StatusCode::OK));
            Ok(reply.huge(bytes))
        }
        immediate => Ok(immediate_reply(immediate, &mut target).complete()),
    }
}

fn accurate(target: &mut impl FakeTarget) -> FakeReply {
    let reply = target.apply();
    target.settle(ReplyTruth::Accurate(reply.status));
    reply
}

async fn close_after(hold_ms: u64) -> Result<Response<Payload>, Hangup> {
    tokio::time::sleep(Duration::from_millis(hold_ms)).await;
    Err(Hangup)
}

/// Faults with an immediate and complete response.
fn immediate_reply(fault: Fault, target: &mut impl FakeTarget) -> FakeReply {
    let (reply, truth): (FakeReply, fn(StatusCode) -> ReplyTruth) = match fault {
        Fault::TooManyRequests { retry_after } => {
            (with_retry_after(target.refuse(Refusal::TooManyRequests), retry_after), ReplyTruth::Accurate)
        }
        Fault::RequestLimitExceeded => (target.refuse(Refusal::RequestLimitExceeded), ReplyTruth::Accurate),
        Fault::ServerUnavailable => (target.refuse(Refusal::ServerUnavailable), ReplyTruth::Accurate),
        Fault::LockRow => (target.refuse(Refusal::LockRow), ReplyTruth::Accurate),
        Fault::DuplicateValue => (target.refuse(Refusal::DuplicateValue), ReplyTruth::Accurate),
        Fault::InvalidSession => (target.refuse(Refusal::InvalidSession), ReplyTruth::Accurate),
        Fault::ErrorBefore => (target.refuse(Refusal::ServerError), ReplyTruth::Ambiguous),
        Fault::ErrorAfter => {
            target.apply();
            (target.refuse(Refusal::ServerError), ReplyTruth::Ambiguous)
        }
        Fault::Gateway { status, moment } => {
            apply_at(moment, target);
            (gateway(status), ReplyTruth::Ambiguous)
        }
        Fault::GarbageBody { moment } => {
            apply_at(moment, target);
            (garbage(), ReplyTruth::Ambiguous)
        }
        Fault::RedirectLoop => {
            let address = target.address();
            (FakeReply::empty(StatusCode::FOUND).with(LOCATION, &address), ReplyTruth::Accurate)
        }
        Fault::StaleRead => (target.absent(), ReplyTruth::Ambiguous),
        Fault::Reply { code } => {
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            (FakeReply::json(status, &serde_json::json!({"error": "injected"})), ReplyTruth::Accurate)
        }
        Fault::Latency(_)
        | Fault::TrickleBody { .. }
        | Fault::TimeoutBefore { .. }
        | Fault::TimeoutAfter { .. }
        | Fault::DropBefore
        | Fault::DropAfter
        | Fault::CutResponse
        | Fault::HugeBody { .. } => (target.apply(), ReplyTruth::Accurate),
    };
    target.settle(truth(reply.status));
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
    // HTTP dates have whole seconds; rounding up keeps the date in the future when it is parsed.
    let second = Timestamp::now().as_second() + i64::from(seconds_from_now) + 1;
    let when = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
    DateTimePrinter::new().timestamp_to_rfc9110_string(&when).expect("the date is valid in HTTP")
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
    fn retry_after_date_is_a_future_http_date() {
        let reply = with_retry_after(FakeReply::empty(StatusCode::TOO_MANY_REQUESTS), RetryAfter::HttpDate(30));
        let text = reply.headers[RETRY_AFTER].to_str().unwrap();
        assert!(text.ends_with(" GMT"), "{text}");
        let parsed = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).unwrap();
        let ahead = parsed.as_second() - Timestamp::now().as_second();
        assert!((29..=31).contains(&ahead), "{ahead} s");
    }
}
