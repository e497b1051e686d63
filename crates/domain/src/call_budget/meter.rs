//! Counts the calls of one slot against what the budget of its destination allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::BUDGET_EXHAUSTED;
use crate::outcome::{Failure, FailureClass};

/// Calls of one slot: effects, read-backs and token requests alike. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct CallMeter(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    made: AtomicU32,
    allowed: Option<u32>,
}

impl CallMeter {
    /// `None`: any number of calls is allowed.
    pub fn new(allowed: Option<u32>) -> CallMeter {
        CallMeter(Arc::new(Count { made: AtomicU32::new(0), allowed }))
    }

    /// Calls that were made so far. One that was refused is not among them.
    pub fn made(&self) -> u32 {
        self.0.made.load(Ordering::Acquire)
    }

    /// Counts a call before it is made; an error if it may not be made.
    pub fn count(&self) -> Result<(), Failure> {
        let most = self.0.allowed.unwrap_or(u32::MAX);
        let next = |made: u32| (made < most).then(|| made + 1);
        match self.0.made.fetch_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(_) => Ok(()),
            Err(_) => Err(Failure::new(
                FailureClass::Retryable,
                BUDGET_EXHAUSTED,
                "The budget of the destination has no calls left for this one; it was not made.",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_beyond_the_allowance_is_refused_and_not_counted() {
        let meter = CallMeter::new(Some(2));
        assert!(meter.count().is_ok() && meter.clone().count().is_ok());
        assert_eq!(meter.count().unwrap_err().code, BUDGET_EXHAUSTED);
        assert_eq!(meter.made(), 2);
        let free = CallMeter::default();
        (0..10).for_each(|_| free.count().unwrap());
        assert_eq!(free.made(), 10);
    }
}
