-- Users of the admin API. The password is a hash in PHC format; absent, the user signs in by links only.
CREATE TABLE user (
  name       TEXT    PRIMARY KEY,
  role       TEXT    NOT NULL,
  reveal     INTEGER NOT NULL,
  password   TEXT,
  created_at INTEGER NOT NULL,
  changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
