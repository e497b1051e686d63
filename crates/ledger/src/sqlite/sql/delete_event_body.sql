DELETE FROM event_body WHERE seq = ?1
