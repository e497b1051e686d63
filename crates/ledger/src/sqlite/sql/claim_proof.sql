INSERT INTO proof (digest, event_key, expires_at) VALUES (?1, ?2, ?3)
ON CONFLICT (digest) DO UPDATE SET event_key = excluded.event_key, expires_at = excluded.expires_at
