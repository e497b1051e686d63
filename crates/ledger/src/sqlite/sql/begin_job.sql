UPDATE job SET state = 1, tries = ?2, updated_at = ?3 WHERE id = ?1 AND state < 8 AND tries = ?2 - 1
