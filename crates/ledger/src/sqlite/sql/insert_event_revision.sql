INSERT INTO event_revision (seq, n, at, actor, reason, contact_id, contact_key, sealed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
