SELECT created_at FROM job WHERE id = ?1
