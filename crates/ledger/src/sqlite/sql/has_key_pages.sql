SELECT EXISTS (SELECT 1 FROM key_page WHERE id >= ?1 AND id < ?2)
