-- Contacts: one for each person. `sealed` is the state with the values of every field, sealed with the key of `contact_key`; `seq` is
-- the newest event in it. A contact that is merged into another one keeps its own state, so that it can be split off again.
CREATE TABLE contact (
  id          INTEGER PRIMARY KEY,
  merged_into INTEGER,
  contact_key INTEGER,
  seq         INTEGER NOT NULL,
  conflicts   INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  sealed      BLOB    NOT NULL
) STRICT;

CREATE INDEX contact_members ON contact (merged_into) WHERE merged_into IS NOT NULL;
CREATE INDEX contact_conflicts ON contact (id) WHERE conflicts > 0;

-- Identifiers as digests under a key of the tenant. Append only; the digest has no index of its own: see identifier_run.
CREATE TABLE identifier (
  id      INTEGER PRIMARY KEY,
  contact INTEGER NOT NULL,
  digest  BLOB    NOT NULL
) STRICT;

CREATE TABLE identifier_run (
  run        INTEGER PRIMARY KEY,
  level      INTEGER NOT NULL,
  entries    INTEGER NOT NULL,
  first_seq  INTEGER NOT NULL,
  last_seq   INTEGER NOT NULL
) STRICT;

CREATE TABLE identifier_page (
  id      INTEGER PRIMARY KEY,
  entries BLOB NOT NULL
) STRICT;

CREATE TABLE identifier_index (
  run   INTEGER NOT NULL,
  kind  INTEGER NOT NULL,
  chunk INTEGER NOT NULL,
  bytes BLOB    NOT NULL,
  PRIMARY KEY (run, kind, chunk)
) STRICT, WITHOUT ROWID;

-- The last confirmed write of each step for a contact.
CREATE TABLE contact_write (
  contact INTEGER NOT NULL,
  slot    BLOB    NOT NULL,
  sealed  BLOB    NOT NULL,
  PRIMARY KEY (contact, slot)
) STRICT, WITHOUT ROWID;

-- The contact of an event, as it was when the event was accepted. Numbers of contacts ascend, so that entries of new ones are appended.
ALTER TABLE event ADD COLUMN contact_id INTEGER;
CREATE INDEX event_contact_id ON event (contact_id) WHERE contact_id IS NOT NULL;
