-- Imports: files that operators feed through a flow, and how far each has come. The id follows from the file and the flow.
CREATE TABLE import (
  n           INTEGER PRIMARY KEY,
  id          BLOB    NOT NULL UNIQUE,
  flow        TEXT    NOT NULL,
  file        TEXT    NOT NULL,
  rows        INTEGER NOT NULL,
  position    INTEGER NOT NULL,
  accepted    INTEGER NOT NULL,
  duplicates  INTEGER NOT NULL,
  quarantined INTEGER NOT NULL,
  refused     INTEGER NOT NULL,
  state       TEXT    NOT NULL,
  actor       TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  created_at  INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL
) STRICT;
