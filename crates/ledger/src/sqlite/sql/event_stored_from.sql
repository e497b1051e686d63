SELECT persisted_at FROM event WHERE seq >= ?1 ORDER BY seq LIMIT 1
