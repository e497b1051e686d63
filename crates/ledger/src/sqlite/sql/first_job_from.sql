SELECT first_job FROM event WHERE seq >= ?1 ORDER BY seq LIMIT 1
