UPDATE variant SET further = further + 1 WHERE seq = ?1 AND n = ?2
