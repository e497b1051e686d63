SELECT id, key, generation, expires_at, fingerprint FROM event WHERE ord = ?1
