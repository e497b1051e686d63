UPDATE job SET due_at = ?2, updated_at = ?2 WHERE id = ?1
