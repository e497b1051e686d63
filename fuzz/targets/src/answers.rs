//! What destinations answer.

use std::sync::LazyLock;

use sluice_connectors::fuzz::{self, Answered};
use sluice_domain::time::Time;
use tokio::runtime::Runtime;

use crate::{choice, line};

const NOW: Time = Time(1_790_000_000_000);

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().build().expect("a runtime of one thread"));

/// A wait or nothing.
pub(crate) fn retry_after(input: &[u8]) {
    let _ = fuzz::retry_after(&String::from_utf8_lossy(input), NOW);
}

/// A reply has a code of three digits; a refusal of it is no success.
pub(crate) fn smtp_reply(input: &[u8]) {
    if let Some((code, outcome)) = RUNTIME.block_on(fuzz::smtp_reply(input)) {
        assert!((200..600).contains(&code));
        assert!(outcome.failure().is_some(), "{outcome:?}");
    }
}

/// The first two bytes make the status, the first line is `Retry-After`, the rest the body. No refusal is a success.
pub(crate) fn answer(input: &[u8]) {
    let (high, rest) = choice(input);
    let (low, rest) = choice(rest);
    let (retry_after, body) = line(rest);
    let status = 100 + (high * 256 + low) as u16 % 500;
    for cut in [false, true] {
        for outcome in fuzz::outcomes(Answered { status, retry_after, body, cut }, NOW) {
            if status >= 500 {
                assert!(outcome.failure().is_some(), "{status}: {outcome:?}");
            }
        }
    }
}
