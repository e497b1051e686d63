//! What a destination reports about its daily limit of calls.

use std::sync::{Mutex, PoisonError};

/// Calls used and allowed in the provider's day, as of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub used: u64,
    pub limit: u64,
}

/// The latest report of one destination.
#[derive(Debug, Default)]
pub(crate) struct QuotaReading(Mutex<Option<Quota>>);

impl QuotaReading {
    /// Keeps the report of a response, if it has one.
    pub(crate) fn observe(&self, reported: Option<Quota>) {
        if reported.is_some() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reported;
        }
    }

    pub(crate) fn latest(&self) -> Option<Quota> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
