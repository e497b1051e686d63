-- One file holds everything that must commit together.

-- Single values: last_ord and last_job are the highest numbers that were pruned, which are not given out again;
-- second_net_ms is the longest time for which a flow compares contents; root_check is sealed with the root key;
-- rewrapped is the last contact whose key a rotation of the tenant's key has come to.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- The keys that seal everything else, each wrapped by the one above it. The root key is never here. Version 0 makes
-- digests and is never rotated.
CREATE TABLE tenant_key (
  tenant     TEXT    NOT NULL,
  version    INTEGER NOT NULL,
  wrapped    BLOB    NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (tenant, version)
) STRICT, WITHOUT ROWID;

-- One for each person that payloads are about; without its key once that is destroyed. The digest has no index of its
-- own: see key_run.
CREATE TABLE contact_key (
  id         INTEGER PRIMARY KEY,
  digest     BLOB    NOT NULL,
  wrapped    BLOB,
  created_at INTEGER NOT NULL
) STRICT;

-- Append only. The key has no index of its own: see key_run. Keys and fingerprints are digests under a key of the tenant.
CREATE TABLE event (
  ord          INTEGER PRIMARY KEY,
  id           BLOB    NOT NULL,
  key          BLOB    NOT NULL,
  generation   INTEGER NOT NULL,
  key_text     BLOB    NOT NULL,
  flow         TEXT    NOT NULL,
  source       TEXT    NOT NULL,
  event_type   TEXT    NOT NULL,
  received_at  INTEGER NOT NULL,
  persisted_at INTEGER NOT NULL,
  occurred_at  INTEGER,
  expires_at   INTEGER NOT NULL,
  revision     TEXT    NOT NULL,
  verified_by  TEXT,
  trace        TEXT    NOT NULL,
  fingerprint  BLOB    NOT NULL,
  first_job    INTEGER NOT NULL,
  jobs         INTEGER NOT NULL,
  variant_of   INTEGER,
  contact      INTEGER
) STRICT;

-- Apart from the event, so that bodies can go while the key is still remembered.
CREATE TABLE event_body (
  ord    INTEGER PRIMARY KEY,
  sealed BLOB NOT NULL
) STRICT;

-- Other contents under the key of an event: with a body if they were dropped, with the event that they became if not.
-- There are only so many rows for an event; the last one counts in further what found no row.
CREATE TABLE variant (
  ord         INTEGER NOT NULL,
  n           INTEGER NOT NULL,
  received_at INTEGER NOT NULL,
  fingerprint BLOB    NOT NULL,
  times       INTEGER NOT NULL,
  further     INTEGER NOT NULL,
  event       INTEGER,
  sealed      BLOB,
  PRIMARY KEY (ord, n)
) STRICT, WITHOUT ROWID;

-- Of a failure the message is sealed, and the rest is not, so that jobs are found by it.
CREATE TABLE job (
  id                INTEGER PRIMARY KEY,
  ord               INTEGER NOT NULL,
  worker            TEXT    NOT NULL,
  queue             TEXT    NOT NULL,
  revision          TEXT    NOT NULL,
  entity            INTEGER NOT NULL,
  state             INTEGER NOT NULL,
  step              INTEGER NOT NULL,
  attempts          INTEGER NOT NULL,
  tries             INTEGER NOT NULL,
  due_at            INTEGER NOT NULL,
  verifying         INTEGER NOT NULL,
  created_at        INTEGER NOT NULL,
  updated_at        INTEGER NOT NULL,
  finished_at       INTEGER,
  replays           INTEGER NOT NULL,
  failure           TEXT,
  message           BLOB,
  dead_letter_queue TEXT,
  result            BLOB,
  contact           INTEGER
) STRICT;

-- Only what is alive, in the order in which it is loaded.
CREATE INDEX job_live ON job (worker, id, state) WHERE state < 8;
-- Only what waits for a person.
CREATE INDEX job_parked ON job (state, id) WHERE state IN (10, 11);

-- One row for each thing done, whatever place its step has in the revision that does it: n is the try that began it last.
CREATE TABLE effect (
  job          INTEGER NOT NULL,
  step         INTEGER NOT NULL,
  step_id      TEXT    NOT NULL,
  key          BLOB    NOT NULL,
  action       TEXT    NOT NULL,
  destination  TEXT    NOT NULL,
  class        TEXT    NOT NULL,
  state        TEXT    NOT NULL,
  attempts     INTEGER NOT NULL,
  absent_reads INTEGER NOT NULL,
  reads        INTEGER NOT NULL,
  n            INTEGER NOT NULL,
  result       BLOB,
  first_at     INTEGER NOT NULL,
  last_at      INTEGER NOT NULL,
  PRIMARY KEY (job, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempt (
  job        INTEGER NOT NULL,
  n          INTEGER NOT NULL,
  seq        INTEGER NOT NULL,
  step_id    TEXT    NOT NULL,
  kind       TEXT    NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL,
  outcome    TEXT    NOT NULL,
  failure    TEXT,
  message    BLOB,
  PRIMARY KEY (job, n, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE pause (
  target TEXT PRIMARY KEY,
  at     INTEGER NOT NULL,
  actor  TEXT NOT NULL,
  reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE revision (
  hash  TEXT PRIMARY KEY,
  at    INTEGER NOT NULL,
  actor TEXT NOT NULL,
  files TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
  id     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  actor  TEXT NOT NULL,
  action TEXT NOT NULL,
  object TEXT NOT NULL,
  detail TEXT NOT NULL
) STRICT;

CREATE TABLE tally (
  day        TEXT NOT NULL,
  source     TEXT NOT NULL,
  accepted   INTEGER NOT NULL,
  duplicates INTEGER NOT NULL,
  clashes    INTEGER NOT NULL,
  by_content INTEGER NOT NULL,
  PRIMARY KEY (day, source)
) STRICT, WITHOUT ROWID;

-- How many repeats came how late after their first: within the life of their key (kind 0) and after it (kind 1).
CREATE TABLE lateness (
  source TEXT    NOT NULL,
  kind   INTEGER NOT NULL,
  bucket INTEGER NOT NULL,
  count  INTEGER NOT NULL,
  PRIMARY KEY (source, kind, bucket)
) STRICT, WITHOUT ROWID;

-- The keys of older events in sorted runs, and below the digests of older contacts in the same way. The newest keys are only in the event rows and in memory.
-- A run counts once its row here is committed; pages of a run without a row are left-overs of a crash.
CREATE TABLE key_run (
  run        INTEGER PRIMARY KEY,
  level      INTEGER NOT NULL,
  entries    INTEGER NOT NULL,
  first_ord  INTEGER NOT NULL,
  last_ord   INTEGER NOT NULL
) STRICT;

-- Sorted entries of 16 bytes: the first half of the key, big endian, then the ord. id = run * 2^32 + page.
CREATE TABLE key_page (
  id      INTEGER PRIMARY KEY,
  entries BLOB NOT NULL
) STRICT;

-- What is held in memory for a run: its filter (kind 0) and the first entry of each page (kind 1), in chunks.
CREATE TABLE key_index (
  run   INTEGER NOT NULL,
  kind  INTEGER NOT NULL,
  chunk INTEGER NOT NULL,
  bytes BLOB    NOT NULL,
  PRIMARY KEY (run, kind, chunk)
) STRICT, WITHOUT ROWID;

CREATE TABLE contact_run (
  run        INTEGER PRIMARY KEY,
  level      INTEGER NOT NULL,
  entries    INTEGER NOT NULL,
  first_ord  INTEGER NOT NULL,
  last_ord   INTEGER NOT NULL
) STRICT;

CREATE TABLE contact_page (
  id      INTEGER PRIMARY KEY,
  entries BLOB NOT NULL
) STRICT;

CREATE TABLE contact_index (
  run   INTEGER NOT NULL,
  kind  INTEGER NOT NULL,
  chunk INTEGER NOT NULL,
  bytes BLOB    NOT NULL,
  PRIMARY KEY (run, kind, chunk)
) STRICT, WITHOUT ROWID;
