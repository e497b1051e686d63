-- Whether the event of the job was imported: imports do not use the reserve of a budget.
ALTER TABLE job ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;

-- Calls to a destination that its budget has charged, by the start of the interval in which they count: some 25 rows for a rolling
-- window, one for a day. The last report of the destination about its use is kept with them.
CREATE TABLE call_budget (
  destination    TEXT    NOT NULL,
  interval_from  INTEGER NOT NULL,
  charged        INTEGER NOT NULL,
  reported_used  INTEGER,
  reported_limit INTEGER,
  PRIMARY KEY (destination, interval_from)
) STRICT, WITHOUT ROWID;
