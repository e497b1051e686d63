UPDATE job SET state = 12, updated_at = ?2, finished_at = ?2 WHERE id = ?1
