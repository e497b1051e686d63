UPDATE variant SET times = times + 1 WHERE seq = ?1 AND n = ?2
