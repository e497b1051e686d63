SELECT EXISTS (SELECT 1 FROM contact_key WHERE id >= ?1 AND id <= ?2)
