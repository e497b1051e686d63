SELECT event_key FROM proof WHERE digest = ?1 AND expires_at > ?2
