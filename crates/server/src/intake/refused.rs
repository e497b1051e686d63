//! Requests that were turned away: counted, sampled, and shown.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use serde::Serialize;
use sluice_domain::time::Time;

/// A request that was turned away.
#[derive(Clone, Debug, Serialize)]
pub struct Refused {
    /// When.
    pub at: Time,
    /// Whose it claimed to be.
    pub source: String,
    /// From where.
    pub address: String,
    /// The problem's code.
    pub code: &'static str,
    /// The problem's detail.
    pub detail: String,
}

const RECENT_MAX: usize = 256;

/// The latest refusals, and when each kind was last written to the audit trail.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    recent: VecDeque<Refused>,
    audited: HashMap<(String, &'static str), (i64, u64)>,
}

impl Refusals {
    /// Remembers one. Answers how many of its kind an audit line should speak of: one line a second and kind, so that
    /// a flood of forged requests does not become a flood of writes.
    pub fn note(&self, refused: Refused) -> Option<u64> {
        let Ok(mut inner) = self.inner.lock() else { return None };
        let key = (refused.source.clone(), refused.code);
        let second = refused.at.seconds();
        if inner.recent.len() >= RECENT_MAX {
            inner.recent.pop_back();
        }
        inner.recent.push_front(refused);
        let (last, waiting) = inner.audited.entry(key).or_insert((i64::MIN, 0));
        *waiting += 1;
        if *last == second {
            return None;
        }
        *last = second;
        Some(std::mem::take(waiting))
    }

    /// The latest, newest first.
    pub fn recent(&self) -> Vec<Refused> {
        self.inner.lock().map(|inner| inner.recent.iter().cloned().collect()).unwrap_or_default()
    }
}
