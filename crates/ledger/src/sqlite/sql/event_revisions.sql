SELECT n, at, actor, reason, contact_key, sealed FROM event_revision WHERE seq = ?1 ORDER BY n
