-- Response clocks that run: a deadline from an event to the effect that answers it. A clock is deleted when it ends; how it ended is
-- counted. Look_at is when it is looked at next. The step is empty if the whole job is the answer.
CREATE TABLE response_clock (
  seq         INTEGER PRIMARY KEY,
  event       BLOB    NOT NULL,
  flow        TEXT    NOT NULL,
  job         INTEGER NOT NULL,
  worker      TEXT    NOT NULL,
  step        TEXT    NOT NULL,
  received_at INTEGER NOT NULL,
  risk_at     INTEGER NOT NULL,
  deadline    INTEGER NOT NULL,
  state       TEXT    NOT NULL,
  look_at     INTEGER NOT NULL
) STRICT;

CREATE INDEX response_clock_look ON response_clock (look_at);
