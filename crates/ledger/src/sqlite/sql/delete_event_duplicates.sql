DELETE FROM event_duplicate WHERE seq = ?1
