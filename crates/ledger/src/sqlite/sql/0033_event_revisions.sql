-- Edits of events, by number from 1. The newest one counts instead of the normalized event that was accepted, which stays in event_body.
-- `contact_key` is the key that seals the edited event.
CREATE TABLE event_revision (
  seq         INTEGER NOT NULL,
  n           INTEGER NOT NULL,
  at          INTEGER NOT NULL,
  actor       TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  contact_id  INTEGER,
  contact_key INTEGER,
  sealed      BLOB    NOT NULL,
  PRIMARY KEY (seq, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_revision_contact ON event_revision (contact_id) WHERE contact_id IS NOT NULL;
CREATE INDEX event_revision_key ON event_revision (contact_key) WHERE contact_key IS NOT NULL;
