-- Replays: what an operator asked for, and how far it has come. Revision, rate_count and rate_ms may be absent: the revision of each job, no limit.
CREATE TABLE replay (
  id         INTEGER PRIMARY KEY,
  selection  TEXT    NOT NULL,
  actor      TEXT    NOT NULL,
  reason     TEXT    NOT NULL,
  revision   TEXT,
  reapply    TEXT    NOT NULL,
  rate_count INTEGER,
  rate_ms    INTEGER,
  batch      INTEGER NOT NULL,
  state      TEXT    NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  after_job  INTEGER NOT NULL,
  last_job   INTEGER NOT NULL,
  next_at    INTEGER NOT NULL,
  replayed   INTEGER NOT NULL,
  skipped    INTEGER NOT NULL
) STRICT;

CREATE INDEX replay_running ON replay (id) WHERE state = 'running';
