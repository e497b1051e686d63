SELECT EXISTS (SELECT 1 FROM record_ref WHERE id >= ?1 AND id <= ?2)
