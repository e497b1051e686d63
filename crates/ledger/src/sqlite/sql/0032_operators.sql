-- Dead letters by why they died, kept with every change of a job. Count is the number of dead letters now, total the number ever.
-- Failures are stored as JSON without their sealed message.
CREATE TABLE failure_group (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,
  worker      TEXT    NOT NULL,
  class       TEXT    NOT NULL,
  code        TEXT    NOT NULL,
  state       TEXT    NOT NULL,
  count       INTEGER NOT NULL,
  total       INTEGER NOT NULL,
  first_at    INTEGER NOT NULL,
  last_at     INTEGER NOT NULL,
  last_job    INTEGER NOT NULL,
  changed_at  INTEGER NOT NULL,
  actor       TEXT    NOT NULL,
  reason      TEXT    NOT NULL,
  UNIQUE (worker, class, code)
) STRICT;

CREATE INDEX failure_group_last ON failure_group (last_at, id);

INSERT INTO failure_group (worker, class, code, state, count, total, first_at, last_at, last_job, changed_at, actor, reason)
SELECT worker, failure ->> '$.class', failure ->> '$.code', 'open', count(*), count(*),
       min(coalesce(finished_at, updated_at)), max(coalesce(finished_at, updated_at)), max(id),
       min(coalesce(finished_at, updated_at)), '', ''
  FROM job WHERE state = 10 AND failure ->> '$.class' IS NOT NULL AND failure ->> '$.code' IS NOT NULL
 GROUP BY 1, 2, 3 ORDER BY min(id);

-- Commands with an idempotency key. Status is null while the first request is served by the process of the term; the body is sealed, and null
-- if it was not kept.
CREATE TABLE command (
  id           INTEGER PRIMARY KEY,
  key          BLOB    NOT NULL UNIQUE,
  request      BLOB    NOT NULL,
  term         INTEGER NOT NULL,
  at           INTEGER NOT NULL,
  status       INTEGER,
  content_type TEXT    NOT NULL,
  body         BLOB
) STRICT;

CREATE INDEX command_at ON command (at);
