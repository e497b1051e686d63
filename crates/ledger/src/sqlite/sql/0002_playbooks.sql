-- What playbooks remember beside their effects.

-- `store.setnx`: who set a mark, until when. The key is a digest under a key of the tenant; the owner is the name of the
-- effect that set it.
CREATE TABLE mark (
  store      TEXT    NOT NULL,
  key        BLOB    NOT NULL,
  owner      BLOB    NOT NULL,
  event      BLOB    NOT NULL,
  job        INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (store, key)
) STRICT, WITHOUT ROWID;

-- To release what a dropped job had set, and to remove what has expired.
CREATE INDEX mark_job ON mark (job);
CREATE INDEX mark_expires ON mark (expires_at);

-- One row for each retry that counts against the budget of a contact, until it counts no more.
CREATE TABLE retry_spent (
  worker  TEXT    NOT NULL,
  entity  INTEGER NOT NULL,
  until   INTEGER NOT NULL,
  job     INTEGER NOT NULL,
  n       INTEGER NOT NULL,
  PRIMARY KEY (worker, entity, until, job, n)
) STRICT, WITHOUT ROWID;

CREATE INDEX retry_spent_until ON retry_spent (until);

-- Since when a worker has had this schedule: what lies before is not made up for.
CREATE TABLE schedule (
  worker TEXT PRIMARY KEY,
  rule   TEXT    NOT NULL,
  since  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
