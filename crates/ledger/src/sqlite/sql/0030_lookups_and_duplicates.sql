-- Quarantined events whose lookups may supply an identity: `tries` so far, `due_at` NULL once they are not made again, `last` the code of
-- the last result. Few, since only events without an identity are here, and only until they are identified or pruned.
CREATE TABLE identity_lookup (
  seq    INTEGER PRIMARY KEY,
  tries  INTEGER NOT NULL,
  due_at INTEGER,
  last   TEXT
) STRICT;

CREATE INDEX identity_lookup_due ON identity_lookup (due_at) WHERE due_at IS NOT NULL;

-- Duplicates of an event: one row for each event that has any. `recent` are the last ones, 25 bytes each: rows stay small, since every
-- duplicate writes one.
CREATE TABLE event_duplicate (
  seq      INTEGER PRIMARY KEY,
  count    INTEGER NOT NULL,
  first_at INTEGER NOT NULL,
  last_at  INTEGER NOT NULL,
  recent   BLOB    NOT NULL
) STRICT;
