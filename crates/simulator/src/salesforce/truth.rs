//! What really happened, whatever the callers were told.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::store::WriteKind;
use crate::apply_fault::ReplyTruth;
use crate::faults::FaultKind;

/// The org at one moment, in figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    pub calls: CallCounts,
    pub objects: BTreeMap<String, ObjectTruth>,
    /// How often each fault was injected.
    pub faults: BTreeMap<FaultKind, u64>,
    /// Calls that count against the daily limit, and that limit.
    pub api_usage: u64,
    pub api_limit: u64,
    /// Writes that the log no longer holds; the counts still include them.
    pub writes_forgotten: u64,
    /// Likewise calls.
    pub calls_forgotten: u64,
}

impl Truth {
    /// The figures of one object; all zero when nothing was ever written to it.
    pub fn object(&self, name: &str) -> ObjectTruth {
        self.objects.get(name).copied().unwrap_or_default()
    }

    /// How many faults were injected, of all kinds.
    pub fn faults_total(&self) -> u64 {
        self.faults.values().sum()
    }
}

/// Calls to the data API and to the token address by what became of them. The figures overlap: a call can be both
/// applied and cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCounts {
    /// Data calls that arrived.
    pub received: u64,
    /// Data calls whose fate is known: `received` less those still held.
    pub settled: u64,
    /// Changed at least one record.
    pub applied: u64,
    /// Changed at least one record, and the caller was not told so.
    pub applied_unseen: u64,
    /// Answered with an error and changed nothing.
    pub refused: u64,
    /// Ended without a whole answer.
    pub cut: u64,
    /// Token calls that arrived.
    pub token_calls: u64,
    /// Tokens handed out.
    pub tokens_issued: u64,
}

/// The figures of one object.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectTruth {
    /// Records that exist now.
    pub records: u64,
    pub created: u64,
    pub updated: u64,
    pub deleted: u64,
    /// Different external ids that were ever written.
    pub external_ids: u64,
    /// External ids under which a record was created more than once: a doubled effect.
    pub created_again: u64,
    /// External ids that were written more than once, in any way.
    pub written_again: u64,
    /// External ids that name more than one record now.
    pub ambiguous: u64,
}

/// One change to one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// Counts from 1 in the order of the changes.
    pub number: u64,
    pub at: Timestamp,
    /// The `X-Request-Id` of the answer, even when that answer never arrived.
    pub request_id: String,
    pub object: String,
    pub record_id: String,
    pub external_id: Option<ExternalId>,
    pub action: WriteKind,
    pub writer: Writer,
}

/// The external id that a write went by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalId {
    pub field: String,
    pub value: String,
}

/// Who made a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Writer {
    Caller,
    /// The other side of a simulated race.
    Rival,
}

/// How often one external id was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteCounts {
    pub created: u64,
    pub updated: u64,
    pub deleted: u64,
}

impl WriteCounts {
    /// Records under this external id that have not been deleted.
    pub fn live(&self) -> u64 {
        self.created.saturating_sub(self.deleted)
    }

    fn total(&self) -> u64 {
        self.created + self.updated + self.deleted
    }
}

/// Whether a call changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Applied,
    Unchanged,
}

/// Keeps the figures while writes happen, so that asking for them costs the same however long the run.
#[derive(Debug)]
pub(crate) struct WriteLog {
    pub(crate) calls: CallCounts,
    objects: BTreeMap<String, ObjectBook>,
    writes: VecDeque<Write>,
    writes_kept_max: usize,
    written: u64,
}

#[derive(Debug, Default)]
struct ObjectBook {
    truth: ObjectTruth,
    external_ids: HashMap<String, HashMap<String, WriteCounts>>,
}

impl WriteLog {
    pub(crate) fn new(writes_kept_max: usize) -> WriteLog {
        WriteLog {
            calls: CallCounts::default(),
            objects: BTreeMap::new(),
            writes: VecDeque::new(),
            writes_kept_max,
            written: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = WriteLog::new(self.writes_kept_max);
    }

    /// Enters a change; its number is given here.
    pub(crate) fn enter(&mut self, mut write: Write) {
        let book = self.objects.entry(write.object.clone()).or_default();
        let count = |created: &mut u64, updated: &mut u64, deleted: &mut u64| match write.action {
            WriteKind::Created => *created += 1,
            WriteKind::Updated => *updated += 1,
            WriteKind::Deleted => *deleted += 1,
        };
        let truth = &mut book.truth;
        count(&mut truth.created, &mut truth.updated, &mut truth.deleted);
        if let Some(id) = &write.external_id {
            let counts = book.external_ids.entry(id.field.clone()).or_default().entry(id.value.clone()).or_default();
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

    /// Enters the end of a data call.
    pub(crate) fn settle(&mut self, fate: Fate, told: ReplyTruth) {
        let calls = &mut self.calls;
        let applied = fate == Fate::Applied;
        let (seen, refused) = match told {
            ReplyTruth::Truth(status) => (true, !status.is_success()),
            ReplyTruth::Untruth(status) => (false, !status.is_success()),
            ReplyTruth::Nothing => (false, false),
        };
        calls.settled += 1;
        calls.applied += u64::from(applied);
        calls.applied_unseen += u64::from(applied && !seen);
        calls.cut += u64::from(told == ReplyTruth::Nothing);
        calls.refused += u64::from(refused && !applied);
    }

    pub(crate) fn objects(&self, records: impl Fn(&str) -> u64) -> BTreeMap<String, ObjectTruth> {
        let truth =
            |(name, book): (&String, &ObjectBook)| (name.clone(), ObjectTruth { records: records(name), ..book.truth });
        self.objects.iter().map(truth).collect()
    }

    pub(crate) fn writes(&self) -> impl Iterator<Item = &Write> {
        self.writes.iter()
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn writes_forgotten(&self) -> u64 {
        self.written - self.writes.len() as u64
    }

    pub(crate) fn external_ids(&self, object: &str, field: &str) -> BTreeMap<String, WriteCounts> {
        let counts = self.objects.get(object).and_then(|book| book.external_ids.get(field));
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
            writer: Writer::Caller,
        }
    }

    #[test]
    fn doubled_effects_show_in_the_figures() {
        let mut books = WriteLog::new(3);
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
            books.enter(write(value, action));
        }
        let truth = books.objects(|_| 5)["Lead"];
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
        assert_eq!(books.external_ids("Lead", "X__c")["remade"].live(), 1);
        assert_eq!(books.writes().map(|write| write.number).collect::<Vec<_>>(), [6, 7, 8]);
        assert_eq!(books.writes_forgotten(), 5);
    }

    #[test]
    fn a_call_can_be_applied_and_cut_but_not_applied_and_refused() {
        let mut books = WriteLog::new(0);
        books.settle(Fate::Applied, ReplyTruth::Nothing);
        books.settle(Fate::Applied, ReplyTruth::Untruth(StatusCode::BAD_GATEWAY));
        books.settle(Fate::Unchanged, ReplyTruth::Truth(StatusCode::BAD_REQUEST));
        books.settle(Fate::Applied, ReplyTruth::Truth(StatusCode::CREATED));
        let CallCounts { settled, applied, applied_unseen, refused, cut, .. } = books.calls;
        assert_eq!((settled, applied, applied_unseen, refused, cut), (4, 3, 2, 1, 1));
    }
}
