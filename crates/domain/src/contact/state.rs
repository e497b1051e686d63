//! What is known of a contact: a register for each field.
//!
//! The state is a join semilattice: [`ContactState::observe`] and [`ContactState::join`] are commutative, associative and
//! idempotent, so that disorder, repeats and a merge of two contacts all lead to the same state. Every limit keeps the greatest
//! entries of the union, which is a join again.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::identity::Identifier;
use super::{ContactId, Correlation, OnConflict};
use crate::mutant::Mutant;
use crate::record::EventSeq;
use crate::time::Time;

/// How far the clock of a sender may be ahead: `occurred_at` counts as at most this much after the arrival of the request.
pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);
/// Fields of a contact. The names that sort first are kept.
pub const FIELDS_MAX: usize = 128;
/// Different values of a field that are kept, the winning one included.
pub const VALUES_MAX: usize = 4;
/// Size of the JSON text of a value. A longer one is not merged.
pub const VALUE_BYTES_MAX: usize = 4 * 1024;
/// Conflicts of a contact that are kept: the newest.
const CONFLICTS_MAX: usize = 8;

/// What one event says about its contact. The stored form is that of a quarantined event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// In the order of precedence. None if the event identifies no contact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identifiers: Vec<Identifier>,
    pub values: Vec<ObservedValue>,
    pub source: Arc<str>,
    pub occurred_at: Option<Time>,
    pub received_at: Time,
    #[serde(default)]
    pub on_conflict: OnConflict,
    /// What links the event with others of its source.
    #[serde(skip)]
    pub correlation: Option<Box<Correlation>>,
}

impl Observation {
    /// The time that counts: a sender whose clock is ahead must not win for ever.
    pub fn clamped_at(&self) -> Time {
        let occurred_at = self.occurred_at.unwrap_or(self.received_at);
        match Mutant::ClampMissing.is_on() {
            true => occurred_at,
            false => occurred_at.min(self.received_at + CLOCK_SKEW_MAX),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ObservedValue {
    /// Such as `identity.email` or `attributes.first_name`.
    pub field: String,
    pub value: Value,
    /// Trust of the source for this field.
    pub trust: u8,
    /// An identifier whose first value stays.
    pub guarded: bool,
}

/// A value of a field and what decides whether it wins.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Register {
    pub value: Value,
    pub trust: u8,
    /// Clamped to the arrival of its event.
    pub occurred_at: Time,
    /// The event that says so: its order of arrival.
    pub seq: EventSeq,
    pub guarded: bool,
    pub source: Arc<str>,
}

/// The form in the ledger.
type Stored = (u8, i64, EventSeq, bool, Arc<str>, Value);

impl From<Stored> for Register {
    fn from((trust, occurred_at, seq, guarded, source, value): Stored) -> Register {
        Register { value, trust, occurred_at: Time(occurred_at), seq, guarded, source }
    }
}

impl From<Register> for Stored {
    fn from(register: Register) -> Stored {
        let Register { value, trust, occurred_at, seq, guarded, source } = register;
        (trust, occurred_at.0, seq, guarded, source, value)
    }
}

/// Why a value is not the one of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// The field identifies the contact and keeps its first value.
    Guarded,
    LowerTrust,
    Older,
    /// The same trust and time; the winner arrived later.
    ArrivedEarlier,
}

impl Lost {
    /// In words for operators.
    pub fn describe(self) -> &'static str {
        match self {
            Lost::Guarded => "the first identity stays",
            Lost::LowerTrust => "less trusted",
            Lost::Older => "older",
            Lost::ArrivedEarlier => "arrived earlier",
        }
    }
}

impl Register {
    /// A total order of the values of one field: the greatest one wins.
    ///
    /// Of guarded values the first that arrived is the greatest. A value that is not guarded is greater than one that is: a rule
    /// that lifts the guard takes effect with the next event, and a new guard keeps what is there.
    fn rank(&self, other: &Register) -> Ordering {
        let by_trust = match Mutant::TrustIgnored.is_on() {
            true => Ordering::Equal,
            false => self.trust.cmp(&other.trust),
        };
        other.guarded.cmp(&self.guarded).then_with(|| match self.guarded {
            true => other.seq.cmp(&self.seq),
            false => by_trust.then(self.occurred_at.cmp(&other.occurred_at)).then(self.seq.cmp(&other.seq)),
        })
    }

    /// Why this value lost against the winner of its field.
    pub fn lost_to(&self, winner: &Register) -> Lost {
        if self.guarded {
            return Lost::Guarded;
        }
        match (self.trust.cmp(&winner.trust), self.occurred_at.cmp(&winner.occurred_at)) {
            (Ordering::Less, _) => Lost::LowerTrust,
            (_, Ordering::Less) => Lost::Older,
            _ => Lost::ArrivedEarlier,
        }
    }
}

/// An identifier that could not be linked to the contact of its event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    /// Such as `email`.
    pub kind: String,
    /// The contact that the identifier belongs to; `None` if the contact of the event has another one of this kind.
    pub other: Option<i64>,
}

impl Conflict {
    pub fn other(&self) -> Option<ContactId> {
        self.other.map(ContactId)
    }
}

/// What is known of a contact.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContactState {
    /// By field: the values, the winning one first. Never empty.
    fields: BTreeMap<String, Vec<Register>>,
    /// Kinds of identifiers of which the contact may have one only, and has it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    kinds: BTreeSet<String>,
    /// By event.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    conflicts: BTreeMap<EventSeq, Vec<Conflict>>,
    /// The newest event that was observed: the version of the state.
    pub version: EventSeq,
}

impl ContactState {
    /// Merges what an event says. Values that are null or blank say nothing.
    pub fn observe(&mut self, observation: &Observation, seq: EventSeq) {
        let occurred_at = observation.clamped_at();
        for observed in &observation.values {
            let register = Register {
                value: observed.value.clone(),
                trust: observed.trust,
                occurred_at,
                seq,
                guarded: observed.guarded,
                source: observation.source.clone(),
            };
            put(self.fields.entry(observed.field.clone()).or_default(), register);
        }
        self.version = self.version.max(seq);
        self.limit();
    }

    /// Forgets what an event said, because the event is edited: its edited form is observed instead. Values that were dropped beyond a
    /// limit do not come back.
    pub fn retract(&mut self, seq: EventSeq) {
        for registers in self.fields.values_mut() {
            registers.retain(|register| register.seq != seq);
        }
        self.fields.retain(|_, registers| !registers.is_empty());
        self.conflicts.remove(&seq);
    }

    /// Merges two states: of contacts that are one person.
    pub fn join(&mut self, other: &ContactState) {
        for (field, registers) in &other.fields {
            let values = self.fields.entry(field.clone()).or_default();
            registers.iter().for_each(|register| put(values, register.clone()));
        }
        self.kinds.extend(other.kinds.iter().cloned());
        for (seq, conflicts) in &other.conflicts {
            self.conflicts.entry(*seq).or_insert_with(|| conflicts.clone());
        }
        self.version = self.version.max(other.version);
        self.limit();
    }

    fn limit(&mut self) {
        while self.fields.len() > FIELDS_MAX {
            self.fields.pop_last();
        }
        while self.conflicts.len() > CONFLICTS_MAX {
            self.conflicts.pop_first();
        }
    }

    /// The value of a field.
    pub fn value(&self, field: &str) -> Option<&Value> {
        Some(&self.fields.get(field)?.first()?.value)
    }

    /// Every field with its values, the winning one first.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &[Register])> {
        self.fields.iter().map(|(field, registers)| (field.as_str(), registers.as_slice()))
    }

    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Whether the contact has an identifier of a kind of which it may have one only.
    pub fn holds(&self, kind: &str) -> bool {
        self.kinds.contains(kind)
    }

    pub(crate) fn hold(&mut self, kind: &str) {
        if !self.kinds.contains(kind) {
            self.kinds.insert(kind.to_owned());
        }
    }

    pub(crate) fn conflict(&mut self, seq: EventSeq, conflict: Conflict) {
        self.conflicts.entry(seq).or_default().push(conflict);
        self.limit();
    }

    /// Identifiers that were kept apart, by the event that carried them.
    pub fn conflicts(&self) -> impl Iterator<Item = (EventSeq, &Conflict)> {
        self.conflicts.iter().flat_map(|(seq, conflicts)| conflicts.iter().map(|conflict| (*seq, conflict)))
    }
}

/// Keeps the greatest register of each value, and the greatest values.
fn put(values: &mut Vec<Register>, register: Register) {
    match values.iter_mut().find(|other| other.value == register.value) {
        Some(same) if register.rank(same).is_gt() => *same = register,
        Some(_) => return,
        None => values.push(register),
    }
    values.sort_by(|a, b| b.rank(a));
    values.truncate(VALUES_MAX);
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
