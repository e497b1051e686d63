-- The clock of the ledger, one row: its time when the steady clock of a start of the machine had run for so long, and what it may
-- still be corrected by.
CREATE TABLE ledger_clock (
  id           INTEGER PRIMARY KEY CHECK (id = 1),
  time         INTEGER NOT NULL,
  boot         INTEGER NOT NULL,
  elapsed_ms   INTEGER NOT NULL,
  allowance_ms INTEGER NOT NULL,
  uncounted_ms INTEGER NOT NULL,
  ahead_ms     INTEGER NOT NULL
) STRICT;

-- Rows that retention has deleted, by kind.
CREATE TABLE pruned_total (
  kind  TEXT PRIMARY KEY,
  count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Events of the source and day that retention has deleted: accepted = pruned + those that are there.
ALTER TABLE source_day_count ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;
UPDATE source_day_count SET pruned = accepted - (SELECT count(*) FROM event e
 WHERE e.source = source_day_count.source AND strftime('%Y-%m-%d', e.persisted_at / 1000, 'unixepoch') = source_day_count.day);
INSERT INTO pruned_total (kind, count) SELECT 'event', coalesce(sum(pruned), 0) FROM source_day_count;
DELETE FROM meta WHERE name = 'events_pruned';
INSERT INTO pruned_total (kind, count)
SELECT 'job', max(coalesce((SELECT max(id) FROM job), 0), coalesce((SELECT value FROM meta WHERE name = 'last_job'), 0)) - (SELECT count(*) FROM job);
INSERT INTO pruned_total (kind, count) SELECT 'dead_letter', count(*) FROM audit WHERE actor = 'retention' AND action = 'drop';
