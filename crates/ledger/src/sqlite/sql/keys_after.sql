SELECT ord, key, id FROM event WHERE ord > ?1 ORDER BY ord
