//! One log line for each stage of an event. Lines of success are limited in rate; lines of failures are not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Lines of success that one stage logs in a second.
const LINES_PER_SECOND: u32 = 100;

/// Limits the lines of one stage.
#[derive(Debug)]
pub(crate) struct LineBudget {
    started: Instant,
    /// Second of the process in the upper half, lines of that second in the lower one.
    window: AtomicU64,
    unlogged: AtomicU64,
}

impl Default for LineBudget {
    fn default() -> LineBudget {
        LineBudget { started: Instant::now(), window: AtomicU64::new(0), unlogged: AtomicU64::new(0) }
    }
}

impl LineBudget {
    /// Whether a line may be logged: the number of lines that were left out before it, or `None`.
    pub(crate) fn take(&self) -> Option<u64> {
        self.take_at(self.started.elapsed().as_secs())
    }

    fn take_at(&self, second: u64) -> Option<u64> {
        let window = self.window.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |window| {
            let (last, lines) = (window >> 32, window & u64::from(u32::MAX));
            match lines {
                _ if last != second => Some(second << 32 | 1),
                lines if lines < u64::from(LINES_PER_SECOND) => Some(window + 1),
                _ => None,
            }
        });
        match window {
            Ok(_) => Some(self.unlogged.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.unlogged.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// Limits of the stages.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    pub(crate) accepted: LineBudget,
    pub(crate) duplicate: LineBudget,
    /// Senders decide how many requests are refused.
    pub(crate) refused: LineBudget,
    pub(crate) started: LineBudget,
    pub(crate) called: LineBudget,
    pub(crate) settled: LineBudget,
    pub(crate) replayed: LineBudget,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_second_are_limited_and_the_next_one_says_how_many_were_left_out() {
        let budget = LineBudget::default();
        let logged = (0..250).filter(|_| budget.take_at(7).is_some()).count();
        assert_eq!(logged, LINES_PER_SECOND as usize);
        assert_eq!(budget.take_at(8), Some(150));
        assert_eq!(budget.take_at(8), Some(0));
    }
}
