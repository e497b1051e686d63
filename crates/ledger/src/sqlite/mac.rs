//! MACs of rows: `verify` notices a row that was altered, or removed with the count of it.

use sluice_domain::event::EventId;

use super::key_store::KeyStore;

pub(super) type Mac = [u8; 16];

/// Collects the columns of a row unambiguously.
#[derive(Debug)]
struct Columns(Vec<u8>);

impl Columns {
    fn new() -> Columns {
        Columns(Vec::with_capacity(256))
    }

    fn number(&mut self, number: i64) -> &mut Columns {
        self.0.extend(number.to_be_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Columns {
        self.number(i64::try_from(bytes.len()).unwrap_or(i64::MAX));
        self.0.extend(bytes);
        self
    }

    /// Absence differs from an empty value.
    fn optional(&mut self, bytes: Option<&[u8]>) -> &mut Columns {
        match bytes {
            Some(bytes) => self.bytes(bytes),
            None => self.number(-1),
        }
    }
}

/// The columns of a job that a MAC covers: its identity, its result, and how many effects and attempts it has.
#[derive(Debug)]
pub(super) struct JobColumns<'a> {
    pub id: i64,
    pub event: [u8; 16],
    pub worker: &'a str,
    pub queue: &'a str,
    pub entity: i64,
    pub created_at: i64,
    pub contact: Option<i64>,
    pub effect_rows: u32,
    pub attempt_rows: u32,
    pub result: Option<&'a [u8]>,
}

impl JobColumns<'_> {
    pub(super) fn mac(&self, key_store: &KeyStore) -> Mac {
        let mut columns = Columns::new();
        columns.number(self.id).bytes(&self.event).bytes(self.worker.as_bytes()).bytes(self.queue.as_bytes());
        columns.number(self.entity).number(self.created_at).number(self.contact.unwrap_or(0));
        columns.number(i64::from(self.effect_rows)).number(i64::from(self.attempt_rows)).optional(self.result);
        key_store.digest("job row", &columns.0)
    }
}

/// An effect as it is stored.
#[derive(Clone, Debug)]
pub(super) struct EffectColumns {
    pub job: i64,
    pub key: [u8; 16],
    pub step: u32,
    pub step_id: String,
    pub action: String,
    pub destination: String,
    pub class: String,
    pub state: String,
    pub attempts: u32,
    pub absent_reads: u32,
    pub reads: u32,
    /// The attempt that began it last.
    pub n: u32,
    pub result: Option<Vec<u8>>,
    pub first_at: i64,
    pub last_at: i64,
    pub term: u32,
}

impl EffectColumns {
    /// The columns of `effect.sql`.
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<EffectColumns> {
        Ok(EffectColumns {
            job: row.get(0)?,
            key: row.get(1)?,
            step: row.get(2)?,
            step_id: row.get(3)?,
            action: row.get(4)?,
            destination: row.get(5)?,
            class: row.get(6)?,
            state: row.get(7)?,
            attempts: row.get(8)?,
            absent_reads: row.get(9)?,
            reads: row.get(10)?,
            n: row.get(11)?,
            result: row.get(12)?,
            first_at: row.get(13)?,
            last_at: row.get(14)?,
            term: row.get(15)?,
        })
    }

    pub(super) fn mac(&self, key_store: &KeyStore) -> Mac {
        let mut columns = Columns::new();
        columns.number(self.job).bytes(&self.key).number(i64::from(self.step));
        for text in [&self.step_id, &self.action, &self.destination, &self.class, &self.state] {
            columns.bytes(text.as_bytes());
        }
        for number in [self.attempts, self.absent_reads, self.reads, self.n, self.term] {
            columns.number(i64::from(number));
        }
        columns.optional(self.result.as_deref()).number(self.first_at).number(self.last_at);
        key_store.digest("effect row", &columns.0)
    }
}

/// An attempt as it is stored.
#[derive(Debug)]
pub(super) struct AttemptColumns<'a> {
    pub job: i64,
    pub n: u32,
    pub seq: i64,
    pub step_id: &'a str,
    pub kind: &'a str,
    pub started_at: i64,
    pub ended_at: i64,
    pub outcome: &'a str,
    pub failure: Option<&'a str>,
    pub message: Option<&'a [u8]>,
    pub term: u32,
}

impl AttemptColumns<'_> {
    pub(super) fn mac(&self, key_store: &KeyStore) -> Mac {
        let mut columns = Columns::new();
        columns.number(self.job).number(i64::from(self.n)).number(self.seq);
        columns.bytes(self.step_id.as_bytes()).bytes(self.kind.as_bytes());
        columns.number(self.started_at).number(self.ended_at).bytes(self.outcome.as_bytes());
        columns.optional(self.failure.map(str::as_bytes)).optional(self.message).number(i64::from(self.term));
        key_store.digest("attempt row", &columns.0)
    }
}

/// The MAC of an event whose body is pruned.
pub(super) fn body_pruned_mac(key_store: &KeyStore, event: EventId) -> Mac {
    key_store.digest("pruned event body", &event.0)
}
