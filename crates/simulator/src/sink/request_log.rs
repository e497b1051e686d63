use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::faults::FaultKind;
use crate::reply::FakeReply;

/// The sink at one moment, in figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkTruth {
    /// Requests that arrived.
    pub requests: u64,
    /// Requests whose fate is known: `requests` less those still held.
    pub settled: u64,
    /// Requests other than reads that had their effect.
    pub applied: u64,
    /// Had their effect, and the caller was not told so.
    pub applied_unseen: u64,
    /// Answered with an error, without an effect.
    pub refused: u64,
    /// Ended without a whole answer.
    pub cut: u64,
    /// Repeats that were given the first answer of their key.
    pub replayed: u64,
    /// Different keys seen, as far as remembered.
    pub keys: u64,
    /// Keys whose effect was had more than once: a doubled effect.
    pub keys_applied_again: u64,
    /// Keys that were forgotten to make room.
    pub keys_forgotten: u64,
    /// Requests to paths that were not remembered for want of room.
    pub paths_forgotten: u64,
    /// Resources stored now.
    pub resources: u64,
    /// How often each fault was injected.
    pub faults: BTreeMap<FaultKind, u64>,
}

/// What happened under one idempotency key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyCounts {
    /// Requests that arrived with this key.
    pub requests: u64,
    /// Requests that had their effect.
    pub applied: u64,
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Counts from 1.
    pub number: u64,
    pub method: String,
    /// Path and query as they were sent.
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// Bytes that are no UTF-8 are replaced.
    pub body: String,
}

/// What is remembered of requests, within bounds.
#[derive(Debug, Default)]
pub(crate) struct RequestLog {
    paths: HashMap<String, u64>,
    paths_forgotten: u64,
    keys: HashMap<String, KeyBook>,
    keys_in_order: VecDeque<String>,
    keys_applied_again: u64,
    keys_forgotten: u64,
    pub(crate) requests: VecDeque<Received>,
}

#[derive(Debug, Default)]
struct KeyBook {
    counts: KeyCounts,
    first: Option<(u64, FakeReply)>,
}

/// What a key has to say about a request.
#[derive(Debug)]
pub(crate) enum KeyAnswer {
    Fresh,
    Repeat(FakeReply),
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
        if let Some(book) = self.keys.get_mut(key) {
            book.counts.requests += 1;
            return;
        }
        if self.keys.len() == remembered_max
            && let Some(oldest) = self.keys_in_order.pop_front()
        {
            self.keys.remove(&oldest);
            self.keys_forgotten += 1;
        }
        let counts = KeyCounts { requests: 1, applied: 0 };
        self.keys.insert(key.to_owned(), KeyBook { counts, first: None });
        self.keys_in_order.push_back(key.to_owned());
    }

    /// Compares a request with the first one of its key.
    pub(crate) fn ask_key(&self, key: &str, print: u64) -> KeyAnswer {
        match self.keys.get(key).and_then(|book| book.first.as_ref()) {
            None => KeyAnswer::Fresh,
            Some((first, reply)) if *first == print => KeyAnswer::Repeat(reply.clone()),
            Some(_) => KeyAnswer::Mismatch,
        }
    }

    /// Notes that a request of this key had its effect.
    pub(crate) fn applied_key(&mut self, key: &str, print: u64, reply: &FakeReply) {
        let Some(book) = self.keys.get_mut(key) else { return };
        book.counts.applied += 1;
        self.keys_applied_again += u64::from(book.counts.applied == 2);
        book.first.get_or_insert_with(|| (print, reply.clone()));
    }

    pub(crate) fn keep(&mut self, received: Received, kept_max: usize) {
        if self.requests.len() == kept_max {
            self.requests.pop_front();
        }
        if kept_max > 0 {
            self.requests.push_back(received);
        }
    }

    pub(crate) fn keys(&self) -> BTreeMap<String, KeyCounts> {
        self.keys.iter().map(|(key, book)| (key.clone(), book.counts)).collect()
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

/// A short stand-in for method, path and body when two requests of one key are compared.
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
    fn a_key_answers_repeats_and_refuses_other_bodies() {
        let mut books = RequestLog::default();
        books.count_key("k", 10);
        assert!(matches!(books.ask_key("k", 1), KeyAnswer::Fresh));
        books.applied_key("k", 1, &FakeReply::empty(StatusCode::CREATED));
        assert!(matches!(books.ask_key("k", 1), KeyAnswer::Repeat(reply) if reply.status == StatusCode::CREATED));
        assert!(matches!(books.ask_key("k", 2), KeyAnswer::Mismatch));
    }

    #[test]
    fn memory_stays_within_its_bounds_and_says_what_it_forgot() {
        let mut books = RequestLog::default();
        for number in 0..5 {
            books.count_key(&format!("k{number}"), 2);
            books.count_path("POST", &format!("/{number}"), 2);
            let request = Received {
                number,
                method: "POST".to_owned(),
                target: "/".to_owned(),
                headers: Vec::new(),
                body: String::new(),
            };
            books.keep(request, 2);
        }
        let mut truth = SinkTruth::default();
        books.fill_in(&mut truth);
        assert_eq!((truth.keys, truth.keys_forgotten, truth.paths_forgotten), (2, 3, 3));
        assert_eq!(books.keys().into_keys().collect::<Vec<_>>(), ["k3", "k4"]);
        assert_eq!(books.requests.iter().map(|request| request.number).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn an_effect_had_twice_under_one_key_shows() {
        let mut books = RequestLog::default();
        books.count_key("k", 10);
        for _ in 0..3 {
            books.applied_key("k", 1, &FakeReply::empty(StatusCode::OK));
        }
        let mut truth = SinkTruth::default();
        books.fill_in(&mut truth);
        assert_eq!(truth.keys_applied_again, 1);
        assert_eq!(books.keys()["k"], KeyCounts { requests: 1, applied: 3 });
    }
}
