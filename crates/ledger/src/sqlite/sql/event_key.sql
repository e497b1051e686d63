SELECT id, key, generation, expires_at, fingerprint, flow, received_at FROM event WHERE seq = ?1
