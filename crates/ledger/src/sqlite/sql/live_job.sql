SELECT 1 FROM job WHERE id = ?1 AND state < 8
