//! Bounded log of requests, keys and paths.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::faults::FaultKind;
use crate::reply::FakeReply;

/// Counts of the sink at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTruth {
    pub requests: u64,
    /// Requests with a known result: `requests` minus those still held.
    pub settled: u64,
    /// Requests other than reads that were applied.
    pub applied: u64,
    /// Applied, and the response did not tell the caller.
    pub applied_unseen: u64,
    /// Error response without an effect.
    pub refused: u64,
    /// Ended without a complete response.
    pub cut: u64,
    /// Duplicates that got the first response of their key.
    pub replayed: u64,
    /// Distinct keys recorded.
    pub keys: u64,
    /// Keys applied more than once: a duplicate effect.
    pub keys_applied_again: u64,
    /// Keys dropped at the limit.
    pub keys_forgotten: u64,
    /// Requests to paths not recorded because of the limit.
    pub paths_forgotten: u64,
    pub resources: u64,
    /// Injected faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

/// Counts of one idempotency key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCounts {
    pub requests: u64,
    pub applied: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedRequest {
    /// Starts at 1.
    pub number: u64,
    pub method: String,
    /// Path and query as received.
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// Invalid UTF-8 is replaced.
    pub body: String,
}

#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    paths: HashMap<String, u64>,
    paths_forgotten: u64,
    keys: HashMap<String, KeyEntry>,
    keys_in_order: VecDeque<String>,
    keys_applied_again: u64,
    keys_forgotten: u64,
    pub(crate) requests: VecDeque<ReceivedRequest>,
}

#[derive(Debug, Default)]
struct KeyEntry {
    counts: KeyCounts,
    first_reply: Option<(u64, FakeReply)>,
}

/// Result of looking up an idempotency key.
#[derive(Debug)]
pub(crate) enum KeyLookup {
    New,
    Duplicate(FakeReply),
    Mismatch,
}

impl RequestLog {
    pub(crate) fn count_path(&mut self, method: &str, path: &str, remembered_max: usize) {
        let name = format!("{method} {path}");
        if let Some(count) = self.paths.get_mut(&name) {
            *count += 1;
        } else if self.paths.len() < remembered_max {
            self.paths.insert(name, 1);
        } else {
            self.paths_forgotten += 1;
        }
    }

    pub(crate) fn count_key(&mut self, key: &str, remembered_max: usize) {
        if let Some(entry) = self.keys.get_mut(key) {
            entry.counts.requests += 1;
            return;
        }
        if self.keys.len() == remembered_max
            && let Some(oldest) = self.keys_in_order.pop_front()
        {
            self.keys.remove(&oldest);
            self.keys_forgotten += 1;
        }
        let counts = KeyCounts { requests: 1, applied: 0 };
        self.keys.insert(key.to_owned(), KeyEntry { counts, first_reply: None });
        self.keys_in_order.push_back(key.to_owned());
    }

    /// Compares a request with the first one of its key.
    pub(crate) fn look_up_key(&self, key: &str, fingerprint: u64) -> KeyLookup {
        match self.keys.get(key).and_then(|entry| entry.first_reply.as_ref()) {
            None => KeyLookup::New,
            Some((first, reply)) if *first == fingerprint => KeyLookup::Duplicate(reply.clone()),
            Some(_) => KeyLookup::Mismatch,
        }
    }

    /// Records that a request of this key was applied.
    pub(crate) fn record_applied(&mut self, key: &str, fingerprint: u64, reply: &FakeReply) {
        let Some(entry) = self.keys.get_mut(key) else { return };
        entry.counts.applied += 1;
        self.keys_applied_again += u64::from(entry.counts.applied == 2);
        entry.first_reply.get_or_insert_with(|| (fingerprint, reply.clone()));
    }

    pub(crate) fn keep(&mut self, request: ReceivedRequest, kept_max: usize) {
        if self.requests.len() == kept_max {
            self.requests.pop_front();
        }
        if kept_max > 0 {
            self.requests.push_back(request);
        }
    }

    pub(crate) fn keys(&self) -> BTreeMap<String, KeyCounts> {
        self.keys.iter().map(|(key, entry)| (key.clone(), entry.counts)).collect()
    }

    pub(crate) fn paths(&self) -> BTreeMap<String, u64> {
        self.paths.iter().map(|(path, count)| (path.clone(), *count)).collect()
    }

    pub(crate) fn fill_in(&self, truth: &mut SinkTruth) {
        truth.keys = self.keys.len() as u64;
        truth.keys_applied_again = self.keys_applied_again;
        truth.keys_forgotten = self.keys_forgotten;
        truth.paths_forgotten = self.paths_forgotten;
    }
}

/// Hash of method, path and body, to compare requests of one key.
pub(crate) fn fingerprint(method: &str, target: &str, body: &Bytes) -> u64 {
    let mut hasher = DefaultHasher::new();
    (method, target, body).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    #[test]
    fn key_replays_duplicates_and_rejects_other_bodies() {
        let mut log = RequestLog::default();
        log.count_key("k", 10);
        assert!(matches!(log.look_up_key("k", 1), KeyLookup::New));
        log.record_applied("k", 1, &FakeReply::empty(StatusCode::CREATED));
        assert!(matches!(log.look_up_key("k", 1), KeyLookup::Duplicate(reply) if reply.status == StatusCode::CREATED));
        assert!(matches!(log.look_up_key("k", 2), KeyLookup::Mismatch));
    }

    #[test]
    fn log_stays_within_its_limits_and_counts_dropped_entries() {
        let mut log = RequestLog::default();
        for number in 0..5 {
            log.count_key(&format!("k{number}"), 2);
            log.count_path("POST", &format!("/{number}"), 2);
            let request = ReceivedRequest {
                number,
                method: "POST".to_owned(),
                target: "/".to_owned(),
                headers: Vec::new(),
                body: String::new(),
            };
            log.keep(request, 2);
        }
        let mut truth = SinkTruth::default();
        log.fill_in(&mut truth);
        assert_eq!((truth.keys, truth.keys_forgotten, truth.paths_forgotten), (2, 3, 3));
        assert_eq!(log.keys().into_keys().collect::<Vec<_>>(), ["k3", "k4"]);
        assert_eq!(log.requests.iter().map(|request| request.number).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn duplicate_effect_under_one_key_is_counted() {
        let mut log = RequestLog::default();
        log.count_key("k", 10);
        for _ in 0..3 {
            log.record_applied("k", 1, &FakeReply::empty(StatusCode::OK));
        }
        let mut truth = SinkTruth::default();
        log.fill_in(&mut truth);
        assert_eq!(truth.keys_applied_again, 1);
        assert_eq!(log.keys()["k"], KeyCounts { requests: 1, applied: 3 });
    }
}
