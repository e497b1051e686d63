SELECT 1 FROM policy_use WHERE policy = ?1 AND channel = ?2 AND contact = ?3 AND effect = ?4
