-- One-time proofs of senders, until they expire: which event each has come with. Digests are made with a tenant key.
CREATE TABLE proof (
  digest     BLOB    NOT NULL PRIMARY KEY,
  event_key  BLOB    NOT NULL,
  expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX proof_expires ON proof (expires_at);
