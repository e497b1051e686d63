SELECT created_at FROM job WHERE state IN (0, 1) AND destination = ?1 AND worker = ?2 ORDER BY id LIMIT 1
