-- Counters since the ledger was created, kept in the transaction of what they count. Recorded is the part of the total that is in the
-- history. Measures are coded by the domain; first and second are label values, empty for a label that the measure does not have.
CREATE TABLE counter (
  measure  INTEGER NOT NULL,
  first    TEXT    NOT NULL,
  second   TEXT    NOT NULL,
  total    INTEGER NOT NULL,
  recorded INTEGER NOT NULL,
  PRIMARY KEY (measure, first, second)
) STRICT, WITHOUT ROWID;

INSERT INTO counter (measure, first, second, total, recorded)
SELECT 1, source, '', sum(accepted), sum(accepted) FROM source_day_count GROUP BY source HAVING sum(accepted) > 0;
INSERT INTO counter (measure, first, second, total, recorded)
SELECT 2, source, '', sum(duplicates), sum(duplicates) FROM source_day_count GROUP BY source HAVING sum(duplicates) > 0;
INSERT INTO counter (measure, first, second, total, recorded)
SELECT 3, source, '', sum(clashes), sum(clashes) FROM source_day_count GROUP BY source HAVING sum(clashes) > 0;

-- Numbers of series, so that an interval does not repeat their names.
CREATE TABLE history_series (
  id      INTEGER PRIMARY KEY,
  measure INTEGER NOT NULL,
  first   TEXT    NOT NULL,
  second  TEXT    NOT NULL,
  UNIQUE (measure, first, second)
) STRICT;

-- One row for each measure and interval that has values. Step: 0 minute, 1 hour, 2 day; at: start of the interval.
CREATE TABLE history (
  step    INTEGER NOT NULL,
  measure INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  points  BLOB    NOT NULL,
  PRIMARY KEY (step, measure, at)
) STRICT, WITHOUT ROWID;

-- The minute that was written last, and the term of its writer.
CREATE TABLE history_last (
  id     INTEGER PRIMARY KEY CHECK (id = 1),
  term   INTEGER NOT NULL,
  minute INTEGER NOT NULL
) STRICT;
