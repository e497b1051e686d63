//! Events by what refers to them: their keys, contacts and traces, and the records that their effects wrote.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;
use sluice_domain::job::{JobId, written_record};
use sluice_domain::upsert::RecordIdentity;

use super::batch::Batch;
use super::key_index::{EventRef, prefix, ref_prefix};
use crate::op::{FoundKeys, KeyLookup};
use crate::record::EventSeq;

impl Batch<'_, '_> {
    /// Remembers the record that an effect wrote, if its result has an id.
    pub(super) fn refer_to_record(&mut self, job: JobId, result: &Value) -> rusqlite::Result<()> {
        let Some(record) = written_record(result) else { return Ok(()) };
        let digest = self.key_store.digest("record", record.as_bytes());
        self.insert_record_ref(job, digest)
    }

    fn insert_record_ref(&mut self, job: JobId, digest: [u8; 16]) -> rusqlite::Result<()> {
        let id = self.counters.next_record_ref;
        self.cached(include_str!("sql/insert_record_ref.sql"))?.execute(params![id, job.0, digest])?;
        self.counters.next_record_ref += 1;
        self.indexes.records.insert(prefix(&digest), id);
        Ok(())
    }

    /// Claims an identity for a job: `false` if the effect of another live job that has it is open.
    pub(super) fn claim_identity(&mut self, job: JobId, identity: &RecordIdentity) -> rusqlite::Result<bool> {
        let digest = self.key_store.digest("identity", identity.text().as_bytes());
        let mut is_known = false;
        for id in self.indexes.records.candidates(self.connection, prefix(&digest))? {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, bool>(1)?));
            let claim = self.cached(include_str!("sql/identity_claim.sql"))?.query_row(params![id, digest], row);
            match claim.optional()? {
                Some((owner, _)) if owner == job.0 => is_known = true,
                Some((_, true)) => return Ok(false),
                _ => {}
            }
        }
        if !is_known {
            self.insert_record_ref(job, digest)?;
        }
        Ok(true)
    }

    pub(super) fn events_of_identity(&self, identity: &RecordIdentity) -> rusqlite::Result<Vec<EventSeq>> {
        let digest = self.key_store.digest("identity", identity.text().as_bytes());
        let mut found: Vec<EventSeq> = Vec::new();
        for id in self.indexes.records.candidates(self.connection, prefix(&digest))? {
            let named = params![id, digest];
            let seq: Option<EventSeq> =
                self.cached(include_str!("sql/identity_ref.sql"))?.query_row(named, |row| row.get(0)).optional()?;
            found.extend(seq);
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        Ok(found)
    }

    pub(super) fn events_of_record(&self, record: &str) -> rusqlite::Result<Vec<EventSeq>> {
        let digest = self.key_store.digest("record", record.as_bytes());
        let mut found: Vec<EventSeq> = Vec::new();
        for id in self.indexes.records.candidates(self.connection, prefix(&digest))? {
            let row = |row: &rusqlite::Row<'_>| Ok((row.get::<_, [u8; 16]>(0)?, row.get(1)?));
            let row = self.cached(include_str!("sql/record_ref.sql"))?.query_row([id], row).optional()?;
            found.extend(row.filter(|(stored, _)| *stored == digest).map(|(_, seq): (_, EventSeq)| seq));
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup();
        Ok(found)
    }

    pub(super) fn events_of_trace(&self, trace: &str) -> rusqlite::Result<Vec<EventSeq>> {
        let Some(reference) = EventRef::trace(trace) else { return Ok(vec![]) };
        let mut found = Vec::new();
        for seq in self.events_of(reference)?.into_iter().rev() {
            let stored: Option<String> =
                self.cached(include_str!("sql/event_trace.sql"))?.query_row([seq], |row| row.get(0)).optional()?;
            found.extend(stored.filter(|stored| stored.split('-').next() == Some(trace)).map(|_| seq));
        }
        Ok(found)
    }

    /// Events with a reference, oldest first. A prefix may be that of another reference, since senders choose trace ids: the rows decide.
    pub(super) fn events_of(&self, reference: EventRef) -> rusqlite::Result<Vec<EventSeq>> {
        let mut row = self.cached(include_str!("sql/event_ref.sql"))?;
        let mut seqs = Vec::new();
        for seq in self.indexes.event_refs.candidates(self.connection, ref_prefix(reference))? {
            let matches = |row: &rusqlite::Row<'_>| {
                let (key, contact): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
                Ok(match reference {
                    EventRef::ContactKey(id) => key == Some(id),
                    EventRef::Contact(id) => contact == Some(id),
                    EventRef::Trace(_) => EventRef::trace(row.get_ref(2)?.as_str()?) == Some(reference),
                })
            };
            if row.query_row([seq], matches).optional()?.unwrap_or(false) {
                seqs.push(seq);
            }
        }
        let identified = self.identified_events(reference)?;
        if !identified.is_empty() {
            seqs.extend(identified);
            seqs.sort_unstable();
            seqs.dedup();
        }
        Ok(seqs)
    }

    /// Expired keys count too.
    pub(super) fn look_up_keys(&self, lookup: &KeyLookup) -> rusqlite::Result<FoundKeys> {
        let mut found = FoundKeys::default();
        for key in &lookup.keys {
            let key = self.key_store.key_digest(*key);
            for seq in self.indexes.keys.candidates(self.connection, prefix(&key.0))? {
                if self.owner(seq)?.is_some_and(|owner| owner.key == key) {
                    found.seqs.push(seq);
                }
            }
        }
        for contact in &lookup.contacts {
            if let Some(id) = self.find_contact(&self.key_store.digest("contact", &contact.0))? {
                found.contact_events.extend(self.events_of(EventRef::ContactKey(id))?);
            }
        }
        Ok(found)
    }
}
