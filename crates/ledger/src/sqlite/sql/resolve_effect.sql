UPDATE effect SET state = ?2, last_at = ?3
 WHERE job = ?1 AND state = 'unknown' AND n = (SELECT max(n) FROM effect WHERE job = ?1 AND state = 'unknown')
