INSERT INTO event_identity (seq, contact_id, contact_key, at, sealed) VALUES (?1, ?2, ?3, ?4, ?5)
