-- The events of a contact and of a trace in sorted runs, like the keys of events in key_run: contacts come back at any time, so a
-- B-tree over them touches another page with nearly every event.
DROP INDEX event_contact;
DROP INDEX event_contact_id;

CREATE TABLE event_ref_run (
  run        INTEGER PRIMARY KEY,
  level      INTEGER NOT NULL,
  entries    INTEGER NOT NULL,
  first_seq  INTEGER NOT NULL,
  last_seq   INTEGER NOT NULL
) STRICT;

CREATE TABLE event_ref_page (
  id      INTEGER PRIMARY KEY,
  entries BLOB NOT NULL
) STRICT;

CREATE TABLE event_ref_index (
  run   INTEGER NOT NULL,
  kind  INTEGER NOT NULL,
  chunk INTEGER NOT NULL,
  bytes BLOB    NOT NULL,
  PRIMARY KEY (run, kind, chunk)
) STRICT, WITHOUT ROWID;

-- The records that effects have written, by a digest of their id at the destination. Append only; the digest has no index of its
-- own: see record_run.
CREATE TABLE record_ref (
  id     INTEGER PRIMARY KEY,
  job    INTEGER NOT NULL,
  digest BLOB    NOT NULL
) STRICT;

CREATE TABLE record_run (
  run        INTEGER PRIMARY KEY,
  level      INTEGER NOT NULL,
  entries    INTEGER NOT NULL,
  first_seq  INTEGER NOT NULL,
  last_seq   INTEGER NOT NULL
) STRICT;

CREATE TABLE record_page (
  id      INTEGER PRIMARY KEY,
  entries BLOB NOT NULL
) STRICT;

CREATE TABLE record_index (
  run   INTEGER NOT NULL,
  kind  INTEGER NOT NULL,
  chunk INTEGER NOT NULL,
  bytes BLOB    NOT NULL,
  PRIMARY KEY (run, kind, chunk)
) STRICT, WITHOUT ROWID;
