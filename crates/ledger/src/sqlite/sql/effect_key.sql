SELECT key FROM effect WHERE job = ?1 AND step = ?2 ORDER BY n DESC LIMIT 1
