//! Compares the contacts that two configurations make of the same requests.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_domain::contact::{ContactId, ContactState};
use sluice_domain::event::EventId;

use super::compare::{field_rows, shown};
use super::report::{ContactTrial, Sample};
use super::rows::Rows;

/// The contacts of each request under both configurations.
#[derive(Clone, Debug, Default)]
pub(crate) struct ContactPairs {
    /// With an event of both.
    pairs: BTreeMap<(ContactId, ContactId), EventId>,
    before: BTreeMap<ContactId, u32>,
    after: BTreeMap<ContactId, u32>,
    pub not_compared: u64,
}

impl ContactPairs {
    pub(crate) fn add(&mut self, event: EventId, before: Option<ContactId>, after: Option<ContactId>) {
        let is_new = match (before, after) {
            (Some(old), Some(new)) => self.pairs.insert((old, new), event).is_none(),
            _ => false,
        };
        for (side, id) in [(&mut self.before, before), (&mut self.after, after)] {
            if let Some(id) = id {
                *side.entry(id).or_default() += u32::from(is_new);
            }
        }
    }

    /// Contacts that correspond one to one are compared field by field.
    pub(crate) fn finish(
        self,
        before: impl Fn(ContactId) -> Option<ContactState>,
        after: impl Fn(ContactId) -> Option<ContactState>,
    ) -> ContactTrial {
        let several = |side: &BTreeMap<ContactId, u32>| side.values().filter(|others| **others > 1).count() as u64;
        let mut fields: Rows<(String, String)> = Rows::default();
        let is_single =
            |(old, new): &(ContactId, ContactId)| self.before.get(old) == Some(&1) && self.after.get(new) == Some(&1);
        for (pair, event) in self.pairs.iter().filter(|(pair, _)| is_single(pair)) {
            let (Some(old), Some(new)) = (before(pair.0), after(pair.1)) else { continue };
            for (field, old, new) in differing(&old, &new) {
                let sample = || Sample {
                    event: event.to_string(),
                    before: shown(&field, old.as_ref()),
                    after: shown(&field, new.as_ref()),
                };
                fields.add((String::new(), field.clone()), true, sample);
            }
        }
        ContactTrial {
            before: self.before.len() as u64,
            after: self.after.len() as u64,
            joined: several(&self.after),
            split: several(&self.before),
            fields: field_rows(fields),
            not_compared: self.not_compared,
        }
    }
}

/// Fields whose merged values differ.
fn differing(old: &ContactState, new: &ContactState) -> Vec<(String, Option<Value>, Option<Value>)> {
    let mut found = Vec::new();
    for (field, _) in old.fields() {
        if old.value(field) != new.value(field) {
            found.push((field.to_owned(), old.value(field).cloned(), new.value(field).cloned()));
        }
    }
    for (field, _) in new.fields().filter(|(field, _)| old.value(field).is_none()) {
        found.push((field.to_owned(), None, new.value(field).cloned()));
    }
    found
}
