SELECT EXISTS (SELECT 1 FROM key_binding WHERE id >= ?1 AND id <= ?2)
