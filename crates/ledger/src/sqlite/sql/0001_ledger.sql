-- One file holds everything that must commit together.

-- Single values: last_ord and last_job are the highest numbers that were pruned, which are not given out again.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- Append only. The key has no index of its own: see key_run.
CREATE TABLE event (
  ord          INTEGER PRIMARY KEY,
  id           BLOB    NOT NULL,
  key          BLOB    NOT NULL,
  generation   INTEGER NOT NULL,
  key_text     TEXT    NOT NULL,
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
  jobs         INTEGER NOT NULL
) STRICT;

-- Apart from the event, so that bodies can go while the key is still remembered.
CREATE TABLE event_body (
  ord        INTEGER PRIMARY KEY,
  headers    TEXT NOT NULL,
  raw        BLOB NOT NULL,
  normalized TEXT NOT NULL
) STRICT;

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
  dead_letter_queue TEXT,
  result            TEXT
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
  result       TEXT,
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
  PRIMARY KEY (day, source)
) STRICT, WITHOUT ROWID;

-- The keys of older events in sorted runs. The newest keys are only in the event rows and in memory.
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
