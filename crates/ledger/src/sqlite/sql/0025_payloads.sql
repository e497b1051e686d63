-- What the payloads of a source and type look like, learned from accepted requests: the shape is sealed. version counts its writes, and
-- notices its open ones. The last event that was looked at is payloads_seen in meta.
CREATE TABLE payload_shape (
  id         INTEGER PRIMARY KEY,
  source     TEXT    NOT NULL,
  event_type TEXT    NOT NULL,
  version    INTEGER NOT NULL,
  notices    INTEGER NOT NULL,
  sealed     BLOB    NOT NULL,
  UNIQUE (source, event_type)
) STRICT;
