SELECT id, key, generation, expires_at, fingerprint, flow, received_at, event_type, signed_content FROM event WHERE seq = ?1
