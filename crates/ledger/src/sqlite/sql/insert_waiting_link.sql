INSERT OR IGNORE INTO waiting_link (digest, seq, expires_at) VALUES (?1, ?2, ?3)
