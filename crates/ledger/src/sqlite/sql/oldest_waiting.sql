SELECT min(CASE WHEN replays > 0 THEN updated_at ELSE created_at END)
  FROM (SELECT j.replays, j.updated_at, j.created_at FROM deferred q CROSS JOIN job j ON j.id = q.id WHERE q.worker = ?1 ORDER BY q.id LIMIT ?2)
