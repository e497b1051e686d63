//! What a service has applied.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;
use serde_json::Value;

use crate::faults::FaultKind;

/// One effect: a message, an event, a profile, an alert.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ServiceEffect {
    /// `sms`, `track`, `mail`, `profile`, `event`, `alert` and the like.
    pub kind: String,
    /// Key of the sender that the request carried, if the service has a place for one; else the address it was sent to.
    pub key: String,
    /// Id that the service gave.
    pub id: String,
    /// The request, as far as the service keeps it.
    pub fields: Value,
}

/// Counts of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ServiceTruth {
    /// Requests by method and path.
    pub calls: BTreeMap<String, u64>,
    /// Effects, those included that are not kept any more.
    pub effects: u64,
    /// Keys with more than one effect.
    pub keys_applied_again: u64,
    /// Requests that the service recognised as a repeat.
    pub repeats: u64,
    /// Effects whose sender got no accurate response.
    pub unseen: u64,
    /// Injected faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
}

#[derive(Debug, Default)]
pub(super) struct ServiceState {
    pub(super) truth: ServiceTruth,
    pub(super) effects: Vec<ServiceEffect>,
    pub(super) effects_max: usize,
    pub(super) applied: HashMap<String, u64>,
    /// Keys that the service itself recognises.
    pub(super) known: HashSet<String>,
}

impl ServiceState {
    /// Records an effect; returns its number, from 1.
    pub(super) fn apply(&mut self, kind: &str, key: &str, fields: Value, id: impl FnOnce(u64) -> String) -> String {
        self.truth.effects += 1;
        let count = self.applied.entry(format!("{kind} {key}")).or_default();
        *count += 1;
        self.truth.keys_applied_again += u64::from(*count == 2);
        let id = id(self.truth.effects);
        if self.effects.len() < self.effects_max {
            self.effects.push(ServiceEffect { kind: kind.to_owned(), key: key.to_owned(), id: id.clone(), fields });
        }
        id
    }

    /// Whether the service sees this key for the first time.
    pub(super) fn is_new(&mut self, key: String) -> bool {
        let is_new = self.known.insert(key);
        self.truth.repeats += u64::from(!is_new);
        is_new
    }
}
