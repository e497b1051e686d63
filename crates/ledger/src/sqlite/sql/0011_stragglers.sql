-- Lanes in which a call of unknown outcome may still be applied: the last confirmed write of the step, which is compared with the
-- record once that time has passed. While it is compared, the time is the largest number that there is.
CREATE TABLE straggler (
  worker  TEXT    NOT NULL,
  entity  INTEGER NOT NULL,
  step_id TEXT    NOT NULL,
  job     INTEGER NOT NULL,
  key     BLOB    NOT NULL,
  due_at  INTEGER NOT NULL,
  PRIMARY KEY (worker, entity, step_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX straggler_due ON straggler (due_at);
CREATE INDEX straggler_job ON straggler (job);
