-- Signed content that owns itself, for senders whose signature does not cover their ids: a digest under a tenant key. It is found through
-- the runs of keys, as the key is.
ALTER TABLE event ADD COLUMN signed_content BLOB;

-- Keys of duplicates that were recognized by their content, and the event that each is bound to until that event's key expires.
-- Keys are digests under a tenant key. Numbers are not given out again: the runs below refer to them.
CREATE TABLE key_binding (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  key        BLOB    NOT NULL,
  seq        INTEGER NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX key_binding_expires ON key_binding (expires_at);

-- The bound keys in sorted runs, like those of events in key_run.
CREATE TABLE binding_run (
  run        INTEGER PRIMARY KEY,
  level      INTEGER NOT NULL,
  entries    INTEGER NOT NULL,
  first_seq  INTEGER NOT NULL,
  last_seq   INTEGER NOT NULL
) STRICT;

CREATE TABLE binding_page (
  id      INTEGER PRIMARY KEY,
  entries BLOB NOT NULL
) STRICT;

CREATE TABLE binding_index (
  run   INTEGER NOT NULL,
  kind  INTEGER NOT NULL,
  chunk INTEGER NOT NULL,
  bytes BLOB    NOT NULL,
  PRIMARY KEY (run, kind, chunk)
) STRICT, WITHOUT ROWID;
