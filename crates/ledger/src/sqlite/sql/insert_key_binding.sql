INSERT INTO key_binding (id, key, seq, expires_at) VALUES (?1, ?2, ?3, ?4)
