//! Upper limits of this machine's disk and of SQLite, to compare measured rates with.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use sluice_domain::event::EventId;
use sluice_domain::key::KeyDigest;

use crate::Error;
use crate::record::NewEvent;
use crate::seal::{DataKey, KeyId, SealContext};
use crate::sqlite::{Role, open};

/// Bytes in the write-ahead log from which it is reset, as the real writer does.
const WAL_BYTES_RESET: u64 = 64 * 1024 * 1024;
const APPEND_BYTES: usize = 4 * 1024;

/// A count and the time that it took.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub count: u64,
    pub elapsed: Duration,
}

impl Measured {
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Bare group commit: rows like those of `event`, in batches of this many, each flushed, without key lookup, replies and
/// announcements: the most that an accept through SQLite could reach.
pub fn group_commit(directory: &Path, event: &NewEvent, batch: usize, time: Duration) -> Result<Measured, Error> {
    let connection = open(directory, Role::Write)?;
    let started = Instant::now();
    let mut count = 0u64;
    while started.elapsed() < time {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for _ in 0..batch.max(1) {
            count += 1;
            insert(&connection, event, i64::try_from(count).unwrap_or(i64::MAX))?;
        }
        connection.execute_batch("COMMIT")?;
        let wal_bytes = std::fs::metadata(directory.join("ledger.db-wal")).map_or(0, |wal| wal.len());
        if wal_bytes >= WAL_BYTES_RESET {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        }
    }
    Ok(Measured { count, elapsed: started.elapsed() })
}

fn insert(connection: &Connection, event: &NewEvent, seq: i64) -> rusqlite::Result<()> {
    // Ascending keys: the best case for any index.
    let mut key = [0; 16];
    key[..8].copy_from_slice(&seq.to_be_bytes());
    let jobs = i64::try_from(event.jobs.len()).unwrap_or(0);
    connection.prepare_cached(include_str!("sqlite/sql/insert_event.sql"))?.execute(params![
        seq,
        EventId::new(KeyDigest(key), 0).0,
        key,
        0,
        event.key_text.as_bytes(),
        event.flow.as_ref(),
        event.source.as_ref(),
        event.event_type,
        event.received_at.0,
        event.received_at.0,
        event.occurred_at.map(|at| at.0),
        event.expires_at.0,
        event.revision.as_ref(),
        event.verified_by,
        event.trace,
        event.fingerprint,
        (seq - 1) * jobs + 1,
        jobs,
        None::<i64>,
        None::<i64>,
        event.signed_content.map(|content| content.0),
        None::<i64>
    ])?;
    connection.prepare_cached(include_str!("sqlite/sql/insert_event_body.sql"))?.execute(params![
        seq,
        [event.body.headers.as_bytes(), &event.body.raw, event.body.normalized.as_bytes()].concat()
    ])?;
    for (offset, job) in (1..).zip(&event.jobs) {
        connection.prepare_cached(include_str!("sqlite/sql/insert_job.sql"))?.execute(params![
            (seq - 1) * jobs + offset,
            seq,
            job.worker.as_ref(),
            job.queue.as_ref(),
            event.revision.as_ref(),
            event.entity as i64,
            event.received_at.0,
            None::<i64>,
            job.route.destination.as_ref(),
            0,
            event.imported
        ])?;
    }
    Ok(())
}

/// Cost of a flush: 4 KiB appended to a file, then `fdatasync`, one after the other.
pub fn flush(directory: &Path, time: Duration) -> Result<Measured, Error> {
    let path = directory.join("flush");
    let failed = |source| Error::Directory { path: path.clone(), source };
    let mut file = File::create(&path).map_err(failed)?;
    let page = [0x5A; APPEND_BYTES];
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < time {
        file.write_all(&page).and_then(|()| file.sync_data()).map_err(failed)?;
        count += 1;
    }
    let measured = Measured { count, elapsed: started.elapsed() };
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(measured)
}

/// A bare HMAC-SHA256, which every signature needs at least.
#[derive(Clone, Debug)]
pub struct BareMac(aws_lc_rs::hmac::Key);

impl BareMac {
    pub fn new(key: &[u8]) -> BareMac {
        BareMac(aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, key))
    }

    /// Its first byte, so that the compiler removes nothing.
    pub fn of(&self, bytes: &[u8]) -> u8 {
        aws_lc_rs::hmac::sign(&self.0, bytes).as_ref()[0]
    }
}

/// The sealing of an accept alone.
#[derive(Clone, Debug)]
pub struct Sealing {
    tenant: DataKey,
}

impl Default for Sealing {
    fn default() -> Sealing {
        Sealing { tenant: DataKey::generate() }
    }
}

impl Sealing {
    /// Seals an event of a new contact: the contact's key, the text of the event's key, and the body. Returns the number of bytes.
    pub fn seal(&self, event: &NewEvent, seq: i64) -> usize {
        const TENANT: &str = "default";
        let contact = DataKey::generate();
        let (tenant, own) = (KeyId::Tenant(1), KeyId::Contact(seq.max(1)));
        let place = |column| SealContext::new("event", seq, column);
        let wrapped = self.tenant.seal(tenant, TENANT, place("contact"), &[contact.to_hex().as_bytes()]);
        let key = contact.seal(own, TENANT, place("key_text"), &[event.key_text.as_bytes()]);
        let body = &event.body;
        let parts = [body.headers.as_bytes(), &body.raw, body.normalized.as_bytes()];
        let body = contact.seal(own, TENANT, place("body"), &parts);
        wrapped.len() + key.len() + body.len()
    }
}
