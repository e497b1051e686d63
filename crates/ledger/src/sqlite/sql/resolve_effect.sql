UPDATE effect SET state = ?3, last_at = ?4 WHERE job = ?1 AND key = ?2
