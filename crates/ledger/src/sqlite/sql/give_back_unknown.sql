DELETE FROM policy_use WHERE effect IN (SELECT key FROM effect WHERE job = ?1 AND state = 'unknown' ORDER BY n DESC LIMIT 1)
