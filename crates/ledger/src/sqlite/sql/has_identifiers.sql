SELECT EXISTS (SELECT 1 FROM identifier WHERE id >= ?1 AND id <= ?2)
