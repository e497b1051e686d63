//! Record of what really happened, independent of the responses.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::apply_fault::ReplyTruth;
use crate::faults::FaultKind;

/// Counts of a CRM at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub calls: CallCounts,
    pub objects: BTreeMap<String, ObjectTruth>,
    /// Injected faults by kind.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Calls counted against the daily limit, and the limit.
    pub api_usage: u64,
    pub api_limit: u64,
    /// Writes dropped from the log; the counts include them.
    pub writes_forgotten: u64,
    /// Calls dropped from the log; the counts include them.
    pub calls_forgotten: u64,
}

impl Truth {
    /// Counts of one object; all zero if it was never written.
    pub fn object(&self, name: &str) -> ObjectTruth {
        self.objects.get(name).copied().unwrap_or_default()
    }

    /// Injected faults of all kinds.
    pub fn faults_total(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// Calls to the data API and the token endpoint by result. The counts overlap: a call can be both applied and cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    /// Data calls received.
    pub received: u64,
    /// Data calls with a known result: `received` minus those still held.
    pub settled: u64,
    /// Changed at least one record.
    pub applied: u64,
    /// Changed at least one record, and the response did not tell the caller.
    pub applied_unseen: u64,
    /// Error response and no change.
    pub refused: u64,
    /// Ended without a complete response.
    pub cut: u64,
    /// Token calls received.
    pub token_calls: u64,
    pub tokens_issued: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTruth {
    /// Records that exist now.
    pub records: u64,
    pub created: u64,
    pub updated: u64,
    pub deleted: u64,
    /// Distinct external ids ever written.
    pub external_ids: u64,
    /// External ids under which a record was created more than once: a duplicate effect.
    pub created_again: u64,
    /// External ids written more than once.
    pub written_again: u64,
    /// External ids shared by more than one existing record.
    pub ambiguous: u64,
}

/// Change of one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Starts at 1, in order of the changes.
    pub number: u64,
    pub at: Timestamp,
    /// `X-Request-Id` of the response, even if it was not delivered.
    pub request_id: String,
    pub object: String,
    pub record_id: String,
    pub external_id: Option<ExternalId>,
    pub action: WriteKind,
    pub writer: WriteActor,
}

/// External id that addressed the written record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalId {
    pub field: String,
    pub value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteActor {
    Caller,
    /// Concurrent writer of a simulated race.
    Rival,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WriteKind {
    Created,
    Updated,
    Deleted,
}

/// Write counts of one external id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCounts {
    pub created: u64,
    pub updated: u64,
    pub deleted: u64,
}

impl WriteCounts {
    /// Existing records with this external id.
    pub fn live(&self) -> u64 {
        self.created.saturating_sub(self.deleted)
    }

    fn total(&self) -> u64 {
        self.created + self.updated + self.deleted
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEffect {
    Applied,
    Unchanged,
}

/// Maintains the counts on every write, so reading them has constant cost.
#[derive(Debug)]
pub(super) struct WriteLog {
    pub(super) calls: CallCounts,
    objects: BTreeMap<String, ObjectWrites>,
    writes: VecDeque<Write>,
    writes_kept_max: usize,
    written: u64,
}

#[derive(Debug, Default)]
struct ObjectWrites {
    truth: ObjectTruth,
    external_ids: HashMap<String, HashMap<String, WriteCounts>>,
}

impl WriteLog {
    pub(super) fn new(writes_kept_max: usize) -> WriteLog {
        WriteLog {
            calls: CallCounts::default(),
            objects: BTreeMap::new(),
            writes: VecDeque::new(),
            writes_kept_max,
            written: 0,
        }
    }

    pub(super) fn clear(&mut self) {
        *self = WriteLog::new(self.writes_kept_max);
    }

    /// Adds a change and assigns its number.
    pub(super) fn record(&mut self, mut write: Write) {
        let object = self.objects.entry(write.object.clone()).or_default();
        let count = |created: &mut u64, updated: &mut u64, deleted: &mut u64| match write.action {
            WriteKind::Created => *created += 1,
            WriteKind::Updated => *updated += 1,
            WriteKind::Deleted => *deleted += 1,
        };
        let truth = &mut object.truth;
        count(&mut truth.created, &mut truth.updated, &mut truth.deleted);
        if let Some(id) = &write.external_id {
            let counts = object.external_ids.entry(id.field.clone()).or_default().entry(id.value.clone()).or_default();
            let before = *counts;
            count(&mut counts.created, &mut counts.updated, &mut counts.deleted);
            truth.external_ids += u64::from(before.total() == 0);
            truth.written_again += u64::from(before.total() == 1);
            truth.created_again += u64::from(before.created == 1 && counts.created == 2);
            truth.ambiguous += u64::from(before.live() == 1 && counts.live() == 2);
            truth.ambiguous -= u64::from(before.live() == 2 && counts.live() == 1);
        }
        self.written += 1;
        write.number = self.written;
        if self.writes.len() == self.writes_kept_max {
            self.writes.pop_front();
        }
        if self.writes_kept_max > 0 {
            self.writes.push_back(write);
        }
    }

    /// Counts the result of a data call.
    pub(super) fn settle(&mut self, effect: CallEffect, reply: ReplyTruth) {
        let calls = &mut self.calls;
        let applied = effect == CallEffect::Applied;
        let (accurate, refused) = match reply {
            ReplyTruth::Accurate(status) => (true, !status.is_success()),
            ReplyTruth::Ambiguous(status) => (false, !status.is_success()),
            ReplyTruth::NoReply => (false, false),
        };
        calls.settled += 1;
        calls.applied += u64::from(applied);
        calls.applied_unseen += u64::from(applied && !accurate);
        calls.cut += u64::from(reply == ReplyTruth::NoReply);
        calls.refused += u64::from(refused && !applied);
    }

    pub(super) fn objects(&self, records: impl Fn(&str) -> u64) -> BTreeMap<String, ObjectTruth> {
        let truth = |(name, object): (&String, &ObjectWrites)| {
            (name.clone(), ObjectTruth { records: records(name), ..object.truth })
        };
        self.objects.iter().map(truth).collect()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter()
    }

    pub(super) fn written(&self) -> u64 {
        self.written
    }

    pub(super) fn writes_forgotten(&self) -> u64 {
        self.written - self.writes.len() as u64
    }

    pub(super) fn external_ids(&self, object: &str, field: &str) -> BTreeMap<String, WriteCounts> {
        let counts = self.objects.get(object).and_then(|object| object.external_ids.get(field));
        counts.into_iter().flatten().map(|(value, counts)| (value.clone(), *counts)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;

    fn write(value: &str, action: WriteKind) -> Write {
        Write {
            number: 0,
            at: Timestamp::UNIX_EPOCH,
            request_id: "r".to_owned(),
            object: "Lead".to_owned(),
            record_id: "00Q".to_owned(),
            external_id: Some(ExternalId { field: "X__c".to_owned(), value: value.to_owned() }),
            action,
            writer: WriteActor::Caller,
        }
    }

    #[test]
    fn duplicate_effects_are_counted() {
        let mut log = WriteLog::new(3);
        for (value, action) in [
            ("once", WriteKind::Created),
            ("again", WriteKind::Created),
            ("again", WriteKind::Updated),
            ("double", WriteKind::Created),
            ("double", WriteKind::Created),
            ("remade", WriteKind::Created),
            ("remade", WriteKind::Deleted),
            ("remade", WriteKind::Created),
        ] {
            log.record(write(value, action));
        }
        let truth = log.objects(|_| 5)["Lead"];
        let expected = ObjectTruth {
            records: 5,
            created: 6,
            updated: 1,
            deleted: 1,
            external_ids: 4,
            created_again: 2,
            written_again: 3,
            ambiguous: 1,
        };
        assert_eq!(truth, expected);
        assert_eq!(log.external_ids("Lead", "X__c")["remade"].live(), 1);
        assert_eq!(log.entries().map(|write| write.number).collect::<Vec<_>>(), [6, 7, 8]);
        assert_eq!(log.writes_forgotten(), 5);
    }

    #[test]
    fn call_can_be_applied_and_cut_but_not_applied_and_refused() {
        let mut log = WriteLog::new(0);
        log.settle(CallEffect::Applied, ReplyTruth::NoReply);
        log.settle(CallEffect::Applied, ReplyTruth::Ambiguous(StatusCode::BAD_GATEWAY));
        log.settle(CallEffect::Unchanged, ReplyTruth::Accurate(StatusCode::BAD_REQUEST));
        log.settle(CallEffect::Applied, ReplyTruth::Accurate(StatusCode::CREATED));
        let CallCounts { settled, applied, applied_unseen, refused, cut, .. } = log.calls;
        assert_eq!((settled, applied, applied_unseen, refused, cut), (4, 3, 2, 1, 1));
    }
}
