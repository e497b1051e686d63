INSERT INTO waiting_event (seq, expires_at, sealed) VALUES (?1, ?2, ?3)
