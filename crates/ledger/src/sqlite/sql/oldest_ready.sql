SELECT min(CASE WHEN replays > 0 THEN updated_at ELSE created_at END)
  FROM (SELECT replays, updated_at, created_at FROM job WHERE state IN (0, 1) AND destination = ?1 AND worker = ?2 ORDER BY id LIMIT ?3)
