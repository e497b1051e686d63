SELECT count(*) FROM policy_use WHERE policy = ?1 AND channel = ?2 AND contact = ?3 AND at > ?4
