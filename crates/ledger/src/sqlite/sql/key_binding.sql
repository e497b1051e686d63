SELECT key, seq, expires_at FROM key_binding WHERE id = ?1
