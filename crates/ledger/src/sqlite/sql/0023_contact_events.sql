-- The events of a contact in sorted runs, like the keys of events in key_run: contacts come back at any time, so a B-tree over
-- them touches another page with nearly every event.
DROP INDEX event_contact;
DROP INDEX event_contact_id;

CREATE TABLE contact_event_run (
  run        INTEGER PRIMARY KEY,
  level      INTEGER NOT NULL,
  entries    INTEGER NOT NULL,
  first_seq  INTEGER NOT NULL,
  last_seq   INTEGER NOT NULL
) STRICT;

CREATE TABLE contact_event_page (
  id      INTEGER PRIMARY KEY,
  entries BLOB NOT NULL
) STRICT;

CREATE TABLE contact_event_index (
  run   INTEGER NOT NULL,
  kind  INTEGER NOT NULL,
  chunk INTEGER NOT NULL,
  bytes BLOB    NOT NULL,
  PRIMARY KEY (run, kind, chunk)
) STRICT, WITHOUT ROWID;
