//! Writes of the merged state of a contact: which fields are sent, and whether there is anything left to send.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ContactId, ContactState};
use crate::digest::{DigestContext, write_parts};
use crate::job::Term;
use crate::mutant::Mutant;
use crate::record::EventSeq;

/// A step with `order: latest`: it writes the merged state of the contact instead of the values of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MergedWrite {
    /// Parameter that holds the fields.
    pub parameter: &'static str,
    /// Sends every field each time instead of those that changed since the last confirmed write.
    pub all_fields: bool,
}

/// Where the confirmed write of a contact is kept: one place for each step of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WriteSlot(pub [u8; 16]);

impl WriteRecord {
    /// The call may have been applied or not.
    pub fn in_doubt(slot: WriteSlot) -> WriteRecord {
        WriteRecord { slot, write: None }
    }
}

impl WriteSlot {
    pub fn new(worker: &str, step: &str) -> WriteSlot {
        static CONTEXT: DigestContext = DigestContext::new("sluice slot of a contact write");
        WriteSlot(CONTEXT.of(|hasher| write_parts(hasher, &[worker, step])))
    }
}

/// The last confirmed write of a step for a contact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContactWrite {
    /// Digest of everything but the fields: the destination and the record.
    pub target: [u8; 16],
    /// Version of the state that was written.
    pub version: EventSeq,
    /// Term of the process that wrote it. A call of another process may have been applied since without being recorded, and so may
    /// a call whose outcome is in doubt: its term is [`ContactWrite::IN_DOUBT`].
    pub term: Term,
    /// Values as they were sent, by field.
    pub fields: Map<String, Value>,
}

impl ContactWrite {
    /// No process has this term.
    pub const IN_DOUBT: Term = Term(0);
}

/// What a run knows of the contact of its event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContactView {
    pub id: ContactId,
    /// Of all contacts that are merged into it.
    pub state: ContactState,
    pub write: Option<ContactWrite>,
}

/// What a settlement records of a write, for the contact of the job's event.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteRecord {
    pub slot: WriteSlot,
    /// `None` if the call may have been applied or not: the next write sends every field.
    pub write: Option<ContactWrite>,
}

/// What is sent for a contact.
#[derive(Clone, Debug, PartialEq)]
pub enum SentFields {
    /// A confirmed write has all of it: one of a later event if `coalesced`.
    Nothing { coalesced: bool },
    /// The fields are those in `with` now. Once applied, this is the confirmed write.
    Send(ContactWrite),
}

/// Reduces the fields in `with` to those that must be sent for the event `seq`.
pub fn sent_fields(merged: MergedWrite, view: &ContactView, call: WriteCall<'_>, with: &mut Value) -> SentFields {
    let target = target(call.destination, merged.parameter, with);
    let Some(Value::Object(fields)) = with.get_mut(merged.parameter) else {
        let write = ContactWrite { target, version: view.state.version, term: call.term, fields: Map::new() };
        return SentFields::Send(write);
    };
    let confirmed = view.write.as_ref().filter(|write| write.target == target && !call.again);
    let is_same = |write: &ContactWrite| fields.iter().all(|(name, value)| write.fields.get(name) == Some(value));
    // A write of this process is the last one. One of an earlier process is known to hold the events up to its version only.
    let is_last = |write: &ContactWrite| write.term == call.term;
    if let Some(write) = confirmed.filter(|write| is_same(write) && (is_last(write) || write.version >= call.seq)) {
        return SentFields::Nothing { coalesced: write.version >= call.seq };
    }
    let mut written = fields.clone();
    if let Some(write) = confirmed.filter(|write| is_last(write) && !merged.all_fields) {
        fields.retain(|name, value| write.fields.get(name) != Some(value));
        for (name, value) in &write.fields {
            written.entry(name.as_str()).or_insert_with(|| value.clone());
        }
    }
    if Mutant::CoalescingDropsField.is_on() && confirmed.is_some() && fields.len() > 1 {
        let last = fields.keys().next_back().cloned().unwrap_or_default();
        fields.remove(&last);
    }
    SentFields::Send(ContactWrite { target, version: view.state.version, term: call.term, fields: written })
}

/// The call that a write belongs to.
#[derive(Clone, Copy, Debug)]
pub struct WriteCall<'a> {
    pub destination: &'a str,
    /// The event of the job.
    pub seq: EventSeq,
    /// Term of this process.
    pub term: Term,
    /// Sends every field whatever was confirmed: the record is to be repaired, or an operator asked for it.
    pub again: bool,
}

fn target(destination: &str, parameter: &str, with: &Value) -> [u8; 16] {
    static CONTEXT: DigestContext = DigestContext::new("sluice target of a contact write");
    CONTEXT.of(|hasher| {
        write_parts(hasher, &[destination]);
        for (name, value) in with.as_object().into_iter().flatten().filter(|(name, _)| *name != parameter) {
            write_parts(hasher, &[name, &value.to_string()]);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const MERGED: MergedWrite = MergedWrite { parameter: "fields", all_fields: false };
    const CALL: WriteCall<'_> = WriteCall { destination: "crm", seq: 3, term: Term(7), again: false };

    fn with(fields: Value) -> Value {
        json!({ "object": "Lead", "external_id": "a", "fields": fields })
    }

    fn view(version: EventSeq, write: Option<ContactWrite>) -> ContactView {
        let mut state = ContactState::default();
        state.version = version;
        ContactView { id: ContactId(1), state, write }
    }

    /// A confirmed write of these fields.
    fn confirmed(version: EventSeq, term: Term, fields: Value) -> ContactWrite {
        let mut with = with(fields);
        match sent_fields(MERGED, &view(version, None), WriteCall { term, ..CALL }, &mut with) {
            SentFields::Send(write) => write,
            SentFields::Nothing { .. } => unreachable!("nothing is confirmed"),
        }
    }

    fn sent(merged: MergedWrite, view: &ContactView, call: WriteCall<'_>, fields: Value) -> (SentFields, Value) {
        let mut with = with(fields);
        let sent = sent_fields(merged, view, call, &mut with);
        (sent, with["fields"].take())
    }

    #[test]
    fn only_changed_fields_are_sent_and_the_confirmed_write_has_all() {
        let known = view(3, Some(confirmed(2, Term(7), json!({"a": 1, "b": 2, "old": 0}))));
        let (result, fields) = sent(MERGED, &known, CALL, json!({"a": 1, "b": 3, "c": null}));
        assert_eq!(fields, json!({"b": 3, "c": null}));
        let SentFields::Send(write) = result else { panic!("it is sent") };
        assert_eq!(Value::Object(write.fields), json!({"a": 1, "b": 3, "c": null, "old": 0}));
        let all = MergedWrite { all_fields: true, ..MERGED };
        assert_eq!(sent(all, &known, CALL, json!({"a": 1, "b": 3})).1, json!({"a": 1, "b": 3}));
    }

    #[test]
    fn a_later_write_that_has_everything_coalesces() {
        let later = view(9, Some(confirmed(9, Term(7), json!({"a": 1}))));
        assert_eq!(sent(MERGED, &later, CALL, json!({"a": 1})).0, SentFields::Nothing { coalesced: true });
        let earlier = view(3, Some(confirmed(2, Term(7), json!({"a": 1}))));
        assert_eq!(sent(MERGED, &earlier, CALL, json!({"a": 1})).0, SentFields::Nothing { coalesced: false });
        let again = WriteCall { again: true, ..CALL };
        assert!(matches!(sent(MERGED, &later, again, json!({"a": 1})).0, SentFields::Send(_)));
    }

    #[test]
    fn after_a_restart_or_a_doubt_every_field_is_sent() {
        for term in [Term(6), ContactWrite::IN_DOUBT] {
            let before = view(3, Some(confirmed(2, term, json!({"a": 1, "b": 2}))));
            assert_eq!(sent(MERGED, &before, CALL, json!({"a": 1, "b": 2})).1, json!({"a": 1, "b": 2}));
            // The write of a later event had this one's values: that stays known.
            let later = view(9, Some(confirmed(9, term, json!({"a": 1}))));
            assert_eq!(sent(MERGED, &later, CALL, json!({"a": 1})).0, SentFields::Nothing { coalesced: true });
        }
    }

    #[test]
    fn another_record_is_written_whole() {
        let known = view(3, Some(confirmed(9, Term(7), json!({"a": 1}))));
        let mut other = json!({ "object": "Lead", "external_id": "b", "fields": {"a": 1} });
        assert!(matches!(sent_fields(MERGED, &known, CALL, &mut other), SentFields::Send(_)));
        assert_eq!(other["fields"], json!({"a": 1}));
    }
}
