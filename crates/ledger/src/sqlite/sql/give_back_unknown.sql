DELETE FROM policy_use WHERE effect IN (SELECT key FROM effect WHERE job = ?1 AND state = 'unknown')
