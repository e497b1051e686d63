-- Conversions of the mapping that lost something, counted in the transaction that accepts the event.
CREATE TABLE mapping_warning (
  source  TEXT    NOT NULL,
  field   TEXT    NOT NULL,
  code    TEXT    NOT NULL,
  count   INTEGER NOT NULL,
  last_at INTEGER NOT NULL,
  PRIMARY KEY (source, field, code)
) STRICT, WITHOUT ROWID;
