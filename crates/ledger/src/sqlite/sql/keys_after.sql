SELECT ord, key, id, expires_at FROM event WHERE ord > ?1 ORDER BY ord
