-- Sessions, API tokens and sign-in links. Secrets are known by their SHA-256 only.
CREATE TABLE credential (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  digest     BLOB    NOT NULL UNIQUE,
  kind       TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  role       TEXT    NOT NULL,
  reveal     INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  created_by TEXT    NOT NULL,
  expires_at INTEGER NOT NULL,
  used_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX credential_name ON credential (kind, name, id);
CREATE INDEX credential_expiry ON credential (expires_at);
