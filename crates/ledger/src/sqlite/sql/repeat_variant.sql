UPDATE variant SET times = times + 1 WHERE ord = ?1 AND n = ?2
