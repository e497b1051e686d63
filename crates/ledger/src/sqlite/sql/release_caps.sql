DELETE FROM policy_use WHERE effect = ?1
