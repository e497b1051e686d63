-- Quarantined events that wait for an identity: `sealed` is what the event says about its contact. Few, since only events without an
-- identity are here, and only until they are identified or `expires_at`.
CREATE TABLE waiting_event (
  seq        INTEGER PRIMARY KEY,
  expires_at INTEGER NOT NULL,
  sealed     BLOB    NOT NULL
) STRICT;

CREATE INDEX waiting_event_expiry ON waiting_event (expires_at);

-- The links of these events, such as a session id, as digests under a key of the tenant.
CREATE TABLE waiting_link (
  digest     BLOB    NOT NULL,
  seq        INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (digest, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX waiting_link_event ON waiting_link (seq);

-- Identities that were supplied for events after they were accepted. The event itself is not changed. `contact_key` is the key that
-- seals the identity.
CREATE TABLE event_identity (
  seq         INTEGER PRIMARY KEY,
  contact_id  INTEGER NOT NULL,
  contact_key INTEGER,
  at          INTEGER NOT NULL,
  sealed      BLOB    NOT NULL
) STRICT;

CREATE INDEX event_identity_contact ON event_identity (contact_id);
CREATE INDEX event_identity_key ON event_identity (contact_key) WHERE contact_key IS NOT NULL;
