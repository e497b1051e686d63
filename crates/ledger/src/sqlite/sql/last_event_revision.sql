SELECT coalesce(max(n), 0) FROM event_revision WHERE seq = ?1
