-- What was in force and since when, one row for each change. A revision that comes back has a row for each time.
CREATE TABLE configured (
  n      INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  hash   TEXT    NOT NULL,
  actor  TEXT    NOT NULL,
  reason TEXT    NOT NULL
) STRICT;

INSERT INTO configured (at, hash, actor, reason) SELECT at, hash, actor, '' FROM revision ORDER BY at;
