-- Effects that are counted under a policy's caps. Contacts are digests under a key of the tenant. A row goes when its effect
-- surely did not happen, or when no window reaches back to it any more.
CREATE TABLE policy_use (
  policy  TEXT    NOT NULL,
  channel TEXT    NOT NULL,
  contact BLOB    NOT NULL,
  effect  BLOB    NOT NULL,
  at      INTEGER NOT NULL,
  until   INTEGER NOT NULL,
  PRIMARY KEY (policy, channel, contact, effect)
) STRICT, WITHOUT ROWID;

CREATE INDEX policy_use_effect ON policy_use (effect);
CREATE INDEX policy_use_until ON policy_use (until);

-- What contacts have agreed to; what was said last counts.
CREATE TABLE consent (
  contact BLOB    NOT NULL,
  purpose TEXT    NOT NULL,
  granted INTEGER NOT NULL,
  at      INTEGER NOT NULL,
  PRIMARY KEY (contact, purpose)
) STRICT, WITHOUT ROWID;

-- Contacts that must not be written to; an empty channel means any. The label, masked, is sealed all the same.
CREATE TABLE suppression (
  id      INTEGER PRIMARY KEY,
  contact BLOB    NOT NULL,
  channel TEXT    NOT NULL,
  at      INTEGER NOT NULL,
  actor   TEXT    NOT NULL,
  reason  TEXT    NOT NULL,
  label   BLOB,
  UNIQUE (contact, channel)
) STRICT;

-- Questions to people, named after the effect key of the step that asks.
CREATE TABLE approval (
  n          INTEGER PRIMARY KEY,
  id         BLOB    NOT NULL UNIQUE,
  job        INTEGER NOT NULL,
  worker     TEXT    NOT NULL,
  step_id    TEXT    NOT NULL,
  title      BLOB    NOT NULL,
  summary    BLOB    NOT NULL,
  asked_at   INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  preset     TEXT    NOT NULL,
  state      TEXT    NOT NULL,
  decided_at INTEGER,
  decided_by TEXT,
  reason     TEXT
) STRICT;

CREATE INDEX approval_job ON approval (job);
CREATE INDEX approval_pending ON approval (n) WHERE state = 'pending';

-- Safe mode of a worker; the empty name is all of them.
CREATE TABLE safe_mode (
  worker TEXT PRIMARY KEY,
  at     INTEGER NOT NULL,
  until  INTEGER NOT NULL,
  actor  TEXT    NOT NULL,
  reason TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
