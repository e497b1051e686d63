SELECT created_at FROM job WHERE state IN (2, 3) AND worker = ?1 ORDER BY id LIMIT 1
