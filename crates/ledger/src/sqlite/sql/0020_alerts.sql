-- Alerts by kind and subject; the subject is empty for the node. Changes counts the changes to firing or recovered, and notified is the
-- last of these that was sent.
CREATE TABLE alert (
  kind            TEXT    NOT NULL,
  subject         TEXT    NOT NULL,
  phase           TEXT    NOT NULL,
  since           INTEGER NOT NULL,
  clear_since     INTEGER,
  changes         INTEGER NOT NULL,
  notified        INTEGER NOT NULL,
  detail          TEXT    NOT NULL,
  acknowledged_by TEXT    NOT NULL,
  snoozed_until   INTEGER,
  PRIMARY KEY (kind, subject)
) STRICT, WITHOUT ROWID;
