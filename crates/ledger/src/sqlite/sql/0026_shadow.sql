-- The configuration that runs beside the active one on accepted requests, and what differs. At most one row. active is the revision that it
-- is compared with, seen the last event; the report is sealed.
CREATE TABLE shadow (
  id         INTEGER PRIMARY KEY CHECK (id = 1),
  hash       TEXT    NOT NULL,
  files      TEXT    NOT NULL,
  started_at INTEGER NOT NULL,
  actor      TEXT    NOT NULL,
  reason     TEXT    NOT NULL,
  active     TEXT    NOT NULL,
  seen       INTEGER NOT NULL,
  sealed     BLOB
) STRICT;
