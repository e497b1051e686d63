SELECT count, first_at, last_at, recent FROM event_duplicate WHERE seq = ?1
