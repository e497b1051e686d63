SELECT EXISTS (SELECT 1 FROM event WHERE ord >= ?1 AND ord <= ?2)
