//! Targets for responses of destinations.

use std::sync::LazyLock;

use sluice_connectors::fuzz::{self, RawResponse};
use sluice_domain::time::Time;
use tokio::runtime::Runtime;

use crate::{choice, line};

const NOW: Time = Time(1_790_000_000_000);

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().expect("a runtime of one thread"));

/// Must not panic.
pub(crate) fn retry_after(input: &[u8]) {
    let _ = fuzz::retry_after(&String::from_utf8_lossy(input), NOW);
}

/// A reply has a three-digit code, and a rejected recipient is never a success.
pub(crate) fn smtp_reply(input: &[u8]) {
    if let Some((code, outcome)) = RUNTIME.block_on(fuzz::smtp_reply(input)) {
        assert!((200..600).contains(&code));
        assert!(outcome.failure().is_some(), "{outcome:?}");
    }
}

/// The first two bytes select the status, the first line is `Retry-After`, the rest is the body. A server error is
/// never a success.
pub(crate) fn response(input: &[u8]) {
    let (high, rest) = choice(input);
    let (low, rest) = choice(rest);
    let (retry_after, body) = line(rest);
    let status = 100 + (high * 256 + low) as u16 % 500;
    for truncated in [false, true] {
        for outcome in fuzz::outcomes(RawResponse { status, retry_after, body, truncated }, NOW) {
            if status >= 500 {
                assert!(outcome.failure().is_some(), "{status}: {outcome:?}");
            }
        }
    }
}
