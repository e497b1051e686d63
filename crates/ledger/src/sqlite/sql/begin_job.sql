UPDATE job SET state = 1, attempts_total = ?2, updated_at = ?3, term = ?4 WHERE id = ?1
