UPDATE variant SET further = further + 1 WHERE ord = ?1 AND n = ?2
