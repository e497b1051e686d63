UPDATE import SET state = ?2, updated_at = ?3 WHERE id = ?1
