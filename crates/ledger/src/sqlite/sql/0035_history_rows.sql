-- Rows of a table without rowid keep at most a quarter of a page beside their key, and a page each for the rest: two years of a large node took
-- 88 MB. As rows of an ordinary table they are appended and share pages: 58 MB.
CREATE TABLE history_rows (
  step    INTEGER NOT NULL,
  measure INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  points  BLOB    NOT NULL,
  UNIQUE (step, measure, at)
) STRICT;
INSERT INTO history_rows SELECT step, measure, at, points FROM history ORDER BY at, step, measure;
DROP TABLE history;
ALTER TABLE history_rows RENAME TO history;
